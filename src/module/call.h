// Values and calls across the C calling convention, both ways. A function is a value, and a call takes and returns values: so the
// two are one source.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "module/object.h"
#include "module/raised.h"
#include "tutti/function.h"
#include "tutti/value.h"

namespace tutti::ffi {

/// Takes over the value (its reference, if it is an object). Tensors and foreign objects are shared, all else is copied.
/// @throws ModuleError  the value is not what it claims to be (check.h); nothing is taken over then
Value take(const TVMFFIAny& owned, const std::string& from);
/// A value that its giver keeps; also those kinds that are for arguments only. A DLTensor* is valid as long as the giver says.
/// @throws ModuleError
Value view(const TVMFFIAny& borrowed, const std::string& from);
/// With a reference for the receiver.  @throws UsageError  a DRef
TVMFFIAny to_owned(const Value& value);
/// The elements stay where they are; `release` runs when the last handle goes.
Tensor wrap(const DLTensor& tensor, std::function<void()> release);
/// The tensor of an object of kTVMFFITensor, sharing its memory; the object lives as long as the tensor.
Tensor tensor_of(const ObjectRef& object);

/// Values with the references that they own.
class OwnedValues {
 public:
  OwnedValues() = default;
  ~OwnedValues();
  OwnedValues(const OwnedValues&) = delete;
  OwnedValues& operator=(const OwnedValues&) = delete;
  void add(const Value& value) { values_.push_back(to_owned(value)); }
  const std::vector<TVMFFIAny>& all() const { return values_; }
  std::vector<TVMFFIAny> release() { return std::exchange(values_, {}); }  ///< the references go to the caller

 private:
  std::vector<TVMFFIAny> values_;
};

/// Arguments for a module, for the time of one call.
class LentArgs {
 public:
  explicit LentArgs(Args args);
  ~LentArgs();
  LentArgs(const LentArgs&) = delete;
  LentArgs& operator=(const LentArgs&) = delete;
  const TVMFFIAny* data() const { return values_.all().data(); }
  int32_t size() const { return static_cast<int32_t>(values_.all().size()); }
  /// The position of an argument that the callee released though it was not its own, or -1.
  int take_back();

 private:
  OwnedValues values_;
  bool lent_ = true;
};

/// A tensor, a function or an opaque value of ours, as an object; value_of gives it back.
ObjectRef make_box(Value value);

/// Calls a function of a module.
/// @throws ModuleError  it failed, or returned what is no value; or what a function of ours threw inside it
Value call_c(const std::string& name, TVMFFISafeCallType function, void* self, Args args);
/// A function object of a module as a function of ours.
Function function_of(std::string name, ObjectRef object);
/// Calls a function of ours for a module: 0, or -1 with a raised error. Never throws.
int call_from_c(const Function& function, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) noexcept;

}  // namespace tutti::ffi
