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

struct FunctionName {
  static const ShortName& of(const Function& function);  ///< made once
};

}  // namespace tutti::detail
