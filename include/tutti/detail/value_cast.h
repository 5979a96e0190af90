// Value::as and the deduction of argument types; included by value.h and function.h.
#pragma once

#include <any>
#include <concepts>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>

#include "tutti/error.h"
#include "tutti/export.h"
#include "tutti/value.h"

namespace tutti::detail {

[[noreturn]] TUTTI_API void throw_wrong_type(const char* expected, const Value& got);
[[noreturn]] TUTTI_API void throw_out_of_range(int64_t least, uint64_t most, int64_t got);

template <class T>
constexpr bool is_shared_ptr = false;
template <class T>
constexpr bool is_shared_ptr<std::shared_ptr<T>> = true;
template <class T>
struct Mutable;
template <class T>
struct Mutable<std::shared_ptr<T>> {
  using type = std::shared_ptr<std::remove_const_t<T>>;
};

template <class T>
const char* type_name_of() {
  if constexpr (std::same_as<T, bool>) return "bool";
  else if constexpr (std::integral<T>) return "int";
  else if constexpr (std::floating_point<T>) return "float";
  else if constexpr (std::same_as<T, std::string>) return "str";
  else if constexpr (std::same_as<T, Bytes>) return "bytes";
  else if constexpr (std::same_as<T, Shape>) return "shape";
  else if constexpr (std::same_as<T, DType>) return "dtype";
  else if constexpr (std::same_as<T, Device>) return "device";
  else if constexpr (std::same_as<T, Tensor>) return "Tensor";
  else if constexpr (std::same_as<T, List>) return "list";
  else if constexpr (std::same_as<T, Dict>) return "dict";
  else if constexpr (std::same_as<T, Function>) return "function";
  else if constexpr (std::same_as<T, Opaque>) return "opaque object";
  else if constexpr (is_shared_ptr<T>) return type_name(typeid(T));
  else if constexpr (std::same_as<T, Value>) return "any";
  else static_assert(sizeof(T) == 0, "this C++ type has no counterpart among tutti's values");
}

/// The content itself; null: it is none of type T, or must be made first.
template <class T>
const T* held(const Value& value) {
  if constexpr (std::same_as<T, Value>) {
    return &value;
  } else if constexpr (is_shared_ptr<T>) {
    const auto* opaque = std::get_if<Opaque>(&value.data());
    return opaque && opaque->object ? std::any_cast<T>(opaque->object.get()) : nullptr;
  } else {
    return std::get_if<T>(&value.data());
  }
}

/// The content as T, or nothing when the type differs (an integer out of range counts as differing).
template <class T>
std::optional<T> try_as(const Value& value) {
  const auto& data = value.data();
  if constexpr (std::same_as<T, Value>) {
    return value;
  } else if constexpr (std::same_as<T, bool>) {
    if (auto* v = std::get_if<bool>(&data)) return *v;
  } else if constexpr (std::integral<T>) {
    if (auto* v = std::get_if<int64_t>(&data); v && std::in_range<T>(*v)) return static_cast<T>(*v);
  } else if constexpr (std::floating_point<T>) {
    if (auto* v = std::get_if<double>(&data)) return static_cast<T>(*v);
    if (auto* v = std::get_if<int64_t>(&data)) return static_cast<T>(*v);
  } else if constexpr (is_shared_ptr<T>) {
    if (value.is_none()) return T();
    if (auto* opaque = std::get_if<Opaque>(&data); opaque && opaque->object) {
      if (auto* v = std::any_cast<T>(opaque->object.get())) return *v;
      if (auto* v = std::any_cast<typename Mutable<T>::type>(opaque->object.get())) return *v;
    }
  } else {
    if (auto* v = std::get_if<T>(&data)) return *v;
    if constexpr (std::same_as<T, Dict>)
      if (auto* opaque = std::get_if<Opaque>(&data); opaque && opaque->content) {
        const Value content = opaque->content(*opaque);
        if (auto* dict = std::get_if<Dict>(&content.data())) return *dict;
      }
  }
  return std::nullopt;
}

}  // namespace tutti::detail

namespace tutti {

template <class T>
T Value::as() const {
  if (auto v = detail::try_as<T>(*this)) return *std::move(v);
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    using Limits = std::numeric_limits<T>;
    if (auto* v = std::get_if<int64_t>(&data_)) detail::throw_out_of_range(Limits::min(), Limits::max(), *v);
  }
  detail::throw_wrong_type(detail::type_name_of<T>(), *this);
}

}  // namespace tutti
