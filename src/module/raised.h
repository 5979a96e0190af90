// Errors across the C calling convention, both ways.
#pragma once

#include <string>

namespace tutti::ffi {

/// What the function `name`, which has returned `code`, has raised: ours as it was thrown, another as a ModuleError.
[[noreturn]] void throw_raised(const std::string& name, int code);

/// Runs `body` for a C caller: 0, or -1 with what it threw as the raised error.
template <class Body>
int guard(Body&& body) noexcept;

void raise_current_exception() noexcept;  ///< inside a catch block: sets the raised error

template <class Body>
int guard(Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (...) {
    raise_current_exception();
    return -1;
  }
}

}  // namespace tutti::ffi
