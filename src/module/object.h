// Objects of the C calling convention (tutti/abi.h): making our own, holding anybody's.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "tutti/abi.h"
#include "tutti/value.h"

namespace tutti::ffi {

void inc_ref(TVMFFIObject* object) noexcept;
void dec_ref(TVMFFIObject* object) noexcept;
uint32_t strong_count(const TVMFFIObject* object) noexcept;

/// One counted reference to an object of any maker.
class ObjectRef {
 public:
  ObjectRef() = default;
  static ObjectRef steal(TVMFFIObject* object) { return ObjectRef(object); }  ///< takes over the caller's reference
  static ObjectRef share(TVMFFIObject* object) {
    if (object) inc_ref(object);
    return ObjectRef(object);
  }
  ObjectRef(const ObjectRef& other) : ObjectRef(share(other.object_)) {}
  ObjectRef(ObjectRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  ObjectRef& operator=(ObjectRef other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~ObjectRef() {
    if (object_) dec_ref(object_);
  }
  TVMFFIObject* get() const { return object_; }
  TVMFFIObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit ObjectRef(TVMFFIObject* object) : object_(object) {}
  TVMFFIObject* object_ = nullptr;
};

/// What follows the header of an object: TVMFFIByteArray, DLTensor, ...
template <class Cell>
Cell& cell_of(const TVMFFIObject* object) {
  return *reinterpret_cast<Cell*>(reinterpret_cast<uintptr_t>(object) + sizeof(TVMFFIObject));
}

ObjectRef make_string(int32_t type_index, std::string content);  ///< kTVMFFIStr or kTVMFFIBytes
ObjectRef make_shape(Shape shape);
ObjectRef make_array(std::vector<TVMFFIAny> owned);  ///< takes over the references in the items
ObjectRef make_error(std::string kind, std::string message, std::string backtrace, std::exception_ptr cause = nullptr);
ObjectRef make_callback(void* self, TVMFFISafeCallType call, void (*deleter)(void*));
ObjectRef make_opaque_object(void* handle, int32_t type_index, void (*deleter)(void*));
/// A tensor, a function or an opaque value of ours, as an object; value_of gives it back.
/// @param call  what calls the object of a function
ObjectRef make_box(Value value, TVMFFISafeCallType call);

/// The value inside an object that make_box made, else null.
const Value* value_of(const TVMFFIObject* object);
/// The exception that an error of make_error stands for, or null.
std::exception_ptr cause_of(const TVMFFIObject* object);

/// While an object made for a call is lent to a module, its last reference is ours. A module that gives it back is found out.
void lend(TVMFFIObject* ours);
bool take_back(TVMFFIObject* ours);  ///< false: the callee released a reference that it did not own

}  // namespace tutti::ffi
