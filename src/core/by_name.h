// Functions of libraries that may not be there.
#pragma once

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>

#include "tutti/error.h"

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

/// What libraries offer, one T for each path: made when it is first asked for, and never freed. That it can't be made is
/// remembered, too.
template <class T>
class Libraries {
 public:
  /// @throws SystemError  make(path) has thrown it, now or before
  template <class Make>
  const T& get(const std::string& path, Make make) {
    const std::lock_guard lock(mutex_);
    const auto [it, is_new] = all_.try_emplace(path);
    Found& found = it->second;
    if (is_new) try {
        found.made = make(path);
      } catch (const SystemError& error) {
        found.why = error.what();
      }
    if (!found.made) throw SystemError(found.why);
    return *found.made;
  }

 private:
  struct Found {
    const T* made = nullptr;
    std::string why;
  };
  std::mutex mutex_;
  std::map<std::string, Found> all_;
};

/// A library that stays.  @returns null, and in `why` what the loader says
inline void* open_library(const std::string& path, std::string& why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (const char* said = library ? nullptr : dlerror()) why = said;
  return library;
}

}  // namespace tutti::detail
