#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "tutti/value.h"

namespace tutti::detail {

/// A name's first 31 characters in words, as a flight recorder keeps them.
struct ShortName {
  std::array<uint64_t, 4> words{};
  ShortName() = default;
  explicit ShortName(std::string_view name) { std::memcpy(words.data(), name.data(), std::min(name.size(), sizeof words - 1)); }
};

/// What functions hold, for the runtime.
struct FunctionParts {
  static const ShortName& short_name(const Function& function);  ///< made once
  static bool are_same(const Function& a, const Function& b) { return a.impl_ == b.impl_; }
  static const Function::Callable* callable(const Function& function);  ///< null: of an empty one
};

}  // namespace tutti::detail
