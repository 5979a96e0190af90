#pragma once

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace tutti::detail {

/// A symbol's name as it is written in C++; one that is none of C++ as it is, null as "".
inline std::string demangled(const char* symbol) {
  if (!symbol) return {};
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : symbol;
}

}  // namespace tutti::detail
