#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "tutti/error.h"
#include "tutti/export.h"
#include "tutti/value.h"

namespace tutti {

struct RegisterOptions {
  bool override_existing = false;
  Function::Options function = {};
};

namespace detail {

/// An argument for a parameter that is a reference to const: what the value holds, or else what it converts to.
template <class T>
class Borrowed {
 public:
  explicit Borrowed(const T& held) : held_(&held) {}
  explicit Borrowed(T&& own) : own_(std::make_unique<const T>(std::move(own))) { held_ = own_.get(); }
  operator const T&() const { return *held_; }  // NOLINT: converts on purpose

 private:
  const T* held_;
  std::unique_ptr<const T> own_;  // seldom
};
template <class A>
struct Taken {
  using Type = std::remove_cvref_t<A>;
};
template <class T>
requires std::is_class_v<T>
struct Taken<const T&> {
  using Type = Borrowed<T>;
};

template <class F>
struct SignatureOf : SignatureOf<decltype(&F::operator())> {};
template <class R, class... A>
struct SignatureOf<R (*)(A...)> {
  using Result = R;
  using Arguments = std::tuple<typename Taken<A>::Type...>;
};
template <class R, class... A>
struct SignatureOf<R (*)(A...) noexcept> : SignatureOf<R (*)(A...)> {};
template <class C, class R, class... A>
struct SignatureOf<R (C::*)(A...)> : SignatureOf<R (*)(A...)> {};
template <class C, class R, class... A>
struct SignatureOf<R (C::*)(A...) const> : SignatureOf<R (*)(A...)> {};
template <class C, class R, class... A>
struct SignatureOf<R (C::*)(A...) noexcept> : SignatureOf<R (*)(A...)> {};
template <class C, class R, class... A>
struct SignatureOf<R (C::*)(A...) const noexcept> : SignatureOf<R (*)(A...)> {};

[[noreturn]] TUTTI_API void throw_argument_count(const std::string& function, size_t expected, size_t got);
[[noreturn]] TUTTI_API void throw_argument_type(const std::string& function, size_t position, const char* expected,
                                                const Value& got);
[[noreturn]] TUTTI_API void throw_argument_range(const std::string& function, size_t position, int64_t least, uint64_t most,
                                                 const Value& got);

template <class T>
T take_argument(const std::string& function, size_t position, const Value& value) {
  if (auto v = try_as<T>(value)) return *std::move(v);
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    using Limits = std::numeric_limits<T>;
    if (std::holds_alternative<int64_t>(value.data()))
      throw_argument_range(function, position, Limits::min(), Limits::max(), value);
  }
  throw_argument_type(function, position, type_name_of<T>(), value);
}
template <class T>
T take(const std::string& function, size_t position, const Value& value, T* /*which*/) {
  return take_argument<T>(function, position, value);
}
template <class T>
Borrowed<T> take(const std::string& function, size_t position, const Value& value, Borrowed<T>* /*which*/) {
  if (const T* there = held<T>(value)) return Borrowed<T>(*there);
  return Borrowed<T>(take_argument<T>(function, position, value));
}

TUTTI_API void register_function(Function function, bool override_existing);

}  // namespace detail

/// Wraps any callable; argument types are deduced. A wrong argument is a UsageError that names function, position,
/// expected and actual type. A callable that takes tutti::Args gets them all, unchecked.
template <class F>
Function make_function(std::string name, F callable, Function::Options options = {}) {
  if constexpr (std::is_invocable_v<F, Args>) {
    return Function(
        std::move(name),
        [callable = std::move(callable)](Args args) mutable -> Value {
          if constexpr (std::is_void_v<std::invoke_result_t<F, Args>>) return callable(args), Value();
          else return Value(callable(args));
        },
        options);
  } else {
    using Sig = detail::SignatureOf<std::decay_t<F>>;
    using Arguments = typename Sig::Arguments;
    constexpr size_t kCount = std::tuple_size_v<Arguments>;
    auto call = [name, callable = std::move(callable)](Args args) mutable -> Value {
      if (args.size() != kCount) detail::throw_argument_count(name, kCount, args.size());
      return [&]<size_t... I>(std::index_sequence<I...>)->Value {
        // braces: evaluated left to right, so that the first wrong argument is the one reported
        Arguments converted{detail::take(name, I, args[I], static_cast<std::tuple_element_t<I, Arguments>*>(nullptr))...};
        if constexpr (std::is_void_v<typename Sig::Result>) {
          callable(std::move(std::get<I>(converted))...);
          return {};
        } else {
          return Value(callable(std::move(std::get<I>(converted))...));
        }
      }
      (std::make_index_sequence<kCount>());
    };
    return Function(std::move(name), std::move(call), options);
  }
}

/// Makes `callable` known on this process under `name`. Every rank runs the same program, so a namespace-scope
///   static const bool registered = tutti::register_global_func("app.add", [](int64_t a, int64_t b) { return a + b; });
/// is enough for all workers. Thread-safe.  @throws UsageError  the name is taken (unless override_existing)
template <class F>
bool register_global_func(std::string name, F callable, RegisterOptions options = {}) {
  detail::register_function(make_function(std::move(name), std::move(callable), options.function), options.override_existing);
  return true;
}

/// @throws UsageError  the name is unknown; near names are listed
TUTTI_API Function get_global_func(std::string_view name);
TUTTI_API std::optional<Function> find_global_func(std::string_view name);

}  // namespace tutti
