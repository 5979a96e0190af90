// Calls across the C calling convention, both ways.
#pragma once

#include <string>

#include "module/object.h"
#include "tutti/function.h"

namespace tutti::ffi {

/// Calls a function of a module.
/// @throws ModuleError  it failed, or returned what is no value; or what a function of ours threw inside it
Value call_c(const std::string& name, TVMFFISafeCallType function, void* self, Args args);
/// A function object of a module as a function of ours.
Function function_of(std::string name, ObjectRef object);
/// Calls a function of ours for a module: 0, or -1 with a raised error. Never throws.
int call_from_c(const Function& function, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) noexcept;

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
