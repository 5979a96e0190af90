#pragma once

#include <any>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/export.h"
#include "tutti/tensor.h"

namespace tutti {

class Value;
class Function;

using Args = std::span<const Value>;
using Bytes = std::vector<std::byte>;

/// A register of a session as an argument; made by converting a DRef. Only on the controller.
struct RegisterRef {
  uint64_t session = 0;
  int64_t id = 0;
  std::shared_ptr<const void> keeps_alive = nullptr;  ///< the DRef's register, as long as the value
  bool operator==(const RegisterRef& other) const { return session == other.session && id == other.id; }
};

/// Any other object. It is passed to functions on its worker as it is. It travels only if `content` is set.
struct Opaque {
  std::shared_ptr<std::any> object;
  std::string type_name;
  const void* address = nullptr;              ///< of what a std::shared_ptr points to: two values of one object are equal
  Value (*content)(const Opaque&) = nullptr;  ///< what the object holds, as a value that travels in its place
};

namespace detail {
struct FunctionParts;
TUTTI_API const char* type_name(const std::type_info& type);  ///< as in the source; lives for ever
}  // namespace detail

/// A callable with its name. Copies share it.
class TUTTI_API Function {
 public:
  using Callable = std::function<Value(Args)>;
  struct Options {
    /// A promise: short, on any thread, without collectives. On worker 0 a controller that waits runs it itself, which saves
    /// switching threads; others' code may then run up to its end before a time-out is noticed.
    bool quick = false;
    int written_arg = -1;        ///< the position of the tensor that a collective writes
    bool worker0_only = false;   ///< as a step of a program: the others have None, and look at none of its arguments
    bool never_skipped = false;  ///< runs also while its worker skips commands after a failure
    bool is_collective = false;  ///< runs one that writes written_arg, and does nothing else: a program may run a plan instead
  };

  Function() = default;
  Function(std::string name, Callable callable, Options options);
  explicit operator bool() const { return impl_ != nullptr; }
  Value operator()(Args args) const;
  const std::string& name() const;
  const Options& options() const;

 private:
  friend struct detail::FunctionParts;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

using List = std::vector<Value>;

/// Values by keys, in the order in which they were set: a dict of Python, a map of TVM.
class TUTTI_API Dict {
 public:
  Dict() = default;
  /// @throws UsageError  not as many values as keys. That the keys differ is not checked.
  Dict(List keys, List values);
  void set(Value key, Value value);           ///< replaces the value that the key has
  const Value* find(const Value& key) const;  ///< null: the key is not there
  size_t size() const;
  const List& keys() const { return keys_; }
  const List& values() const { return values_; }
  bool operator==(const Dict& other) const;  ///< in any order

 private:
  List keys_, values_;
};

/// What arguments, results and registers hold.
class TUTTI_API Value {
 public:
  enum class Kind {
    kNone,
    kBool,
    kInt,
    kFloat,
    kStr,
    kBytes,
    kShape,
    kDType,
    kDevice,
    kTensor,
    kList,
    kFunction,
    kOpaque,
    kRegister,
    kDict
  };
  using Variant = std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, Shape, DType, Device, Tensor, List,
                               Function, Opaque, RegisterRef, Dict>;

  Value() noexcept : data_(std::in_place_index<0>) {}  // `data_()` would set all bytes to zero first
  Value(std::nullptr_t) noexcept : Value() {}
  // what most commands carry needs none of the variant's tables
  ~Value() {
    if (!is_plain()) data_.~Variant();
  }
  Value(const Value& other) : data_(other.data_) {}
  Value(Value&& other) noexcept {
    if (const auto* i = std::get_if<int64_t>(&other.data_)) std::construct_at(&data_, *i);
    else if (other.is_none()) std::construct_at(&data_, std::in_place_index<0>);
    else std::construct_at(&data_, std::move(other.data_));
  }
  Value& operator=(const Value& other) {
    data_ = other.data_;
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    if (const auto* i = std::get_if<int64_t>(&other.data_); i && is_plain()) std::construct_at(&data_, int64_t{*i});
    else if (other.is_none() && is_plain()) std::construct_at(&data_, std::in_place_index<0>);
    else data_ = std::move(other.data_);
    return *this;
  }
  template <class T>
  requires(std::integral<T> && !std::same_as<T, bool>) Value(T v) : data_(to_int64(v)) {}
  template <std::same_as<bool> T>  // nothing else: no pointers, no enums
  Value(T v) : data_(v) {}
  template <std::floating_point T>
  Value(T v) : data_(static_cast<double>(v)) {}
  Value(const char* v) : data_(std::string(v)) {}
  Value(std::string v) : data_(std::move(v)) {}
  Value(std::string_view v) : data_(std::string(v)) {}
  Value(Bytes v) : data_(std::move(v)) {}
  Value(Shape v) : data_(std::move(v)) {}
  Value(DType v) : data_(v) {}
  Value(Device v) : data_(v) {}
  Value(Tensor v) : data_(std::move(v)) {}
  Value(List v) : data_(std::move(v)) {}
  Value(Function v) : data_(std::move(v)) {}
  Value(Opaque v) : data_(std::move(v)) {}
  template <class T>
  Value(std::shared_ptr<T> v) : Value() {  // null is None
    if (const void* address = v.get())
      data_ = Opaque{std::make_shared<std::any>(std::move(v)), detail::type_name(typeid(std::shared_ptr<T>)), address};
  }
  Value(RegisterRef v) : data_(std::move(v)) {}
  Value(Dict v) : data_(std::move(v)) {}

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_none() const { return kind() == Kind::kNone; }
  const char* type_name() const;  ///< "int", "str", "Tensor", ...
  const Variant& data() const { return data_; }

  /// The content as T: bool, any integer or floating type, std::string, Bytes, Shape, DType, Device, Tensor, List,
  /// Dict, Function, Opaque, Value, std::shared_ptr to an object of one's own. int converts to floating types, and an object
  /// whose content is a dict to a Dict; nothing else converts.
  /// @throws UsageError  it holds another type
  template <class T>
  T as() const;

  bool operator==(const Value& other) const;  ///< tensors compare by dtype, shape and bytes; those of a device by where they lie

 private:
  template <class T>
  static int64_t to_int64(T v) {
    if (!std::in_range<int64_t>(v)) throw_too_large();
    return static_cast<int64_t>(v);
  }
  [[noreturn]] static void throw_too_large();
  bool is_plain() const { return kind() <= Kind::kFloat; }  // nothing to destroy
  static_assert(std::is_trivially_destructible_v<std::variant<std::monostate, bool, int64_t, double>> &&
                std::is_same_v<std::variant_alternative_t<static_cast<size_t>(Kind::kFloat), Variant>, double>);
  union {
    Variant data_;
  };
};

/// Makes an opaque object of any copyable C++ object. A std::shared_ptr is one as it is: functions return and take those,
/// of the same type (T to const T converts; a derived class to its base does not). A null one is None.
template <class T>
Value make_opaque(T object, std::string type_name = {}) {
  if (type_name.empty()) type_name = detail::type_name(typeid(T));
  return Opaque{std::make_shared<std::any>(std::move(object)), std::move(type_name)};
}
/// A pointer to the object inside, or null if it is another type.
template <class T>
T* opaque_cast(const Value& value) {
  auto* opaque = std::get_if<Opaque>(&value.data());
  return opaque && opaque->object ? std::any_cast<T>(opaque->object.get()) : nullptr;
}

TUTTI_API std::string to_string(const Value& value);  ///< short, for messages: 'int 3', 'Tensor float32 (2, 3)'

}  // namespace tutti

#include "tutti/detail/value_cast.h"
