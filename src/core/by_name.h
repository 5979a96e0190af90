// Functions of libraries that may not be there.
#pragma once

#include <dlfcn.h>

namespace tutti::detail {

/// Calls a function of `library` (of dlopen) that returns a status, mostly 0 for success; -1: there is none of this name.
template <class... A>
int call_by_name(void* library, const char* name, A... arguments) {
  auto* function = reinterpret_cast<int (*)(A...)>(dlsym(library, name));
  return function ? function(arguments...) : -1;
}

/// One that returns a status, found once.
template <class... Parameters>
struct FoundFunction {
  const char* name = nullptr;
  int (*call)(Parameters...) = nullptr;
};

}  // namespace tutti::detail
