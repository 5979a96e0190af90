#pragma once

#include <cstdint>

namespace tutti {

/// A place in a source file: what std::source_location is, which clang 14 lacks with libstdc++.
struct Where {
  const char* file = "";
  uint32_t line = 0;
  static constexpr Where current(const char* file = __builtin_FILE(), uint32_t line = __builtin_LINE()) { return {file, line}; }
};

}  // namespace tutti
