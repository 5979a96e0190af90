#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::detail {

struct Frame {
  std::string function;  ///< demangled; empty: not known
  std::string file;      ///< and line; empty: no debug information
  int line = 0;
  std::string module;  ///< the program or library, with an offset
};

/// The functions at an address of this process, the innermost first: several when calls were inlined.
std::vector<Frame> frames_at(uintptr_t address);

}  // namespace tutti::detail
