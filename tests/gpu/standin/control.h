// What a test program asks of the stand-ins that the library has loaded.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "gpu/standin/standin.h"

namespace tutti_test::standin_control {

template <class F>
F* find(const char* library, const char* name) {
  void* handle = dlopen(std::getenv(library), RTLD_NOW | RTLD_LOCAL);
  void* address = handle ? dlsym(handle, name) : nullptr;
  if (!address) throw std::runtime_error(std::string("no stand-in: ") + library + " " + name);
  return reinterpret_cast<F*>(address);
}

inline const char* driver() {
  const char* ccl = std::getenv("TUTTI_TEST_CCL");
  return ccl && std::string(ccl) == "rccl" ? "TUTTI_HIP_LIBRARY" : "TUTTI_CUDA_LIBRARY";
}
inline void fail(const char* function, uint64_t use, int status) {
  find<decltype(standin_fail)>(driver(), "standin_fail")(function, use, status);
}
inline size_t blocks() { return find<decltype(standin_blocks)>(driver(), "standin_blocks")(); }
inline char* reach(void* stream, void* memory) {
  return static_cast<char*>(find<decltype(standin_reach)>(driver(), "standin_reach")(stream, memory));
}
/// Runs on the stream, later.
inline void launch(void* stream, std::function<int()> kernel) {
  auto* kept = new std::function<int()>(std::move(kernel));
  find<decltype(standin_launch)>(driver(), "standin_launch")(
      stream,
      [](void* argument) {
        const std::unique_ptr<std::function<int()>> owned(static_cast<std::function<int()>*>(argument));
        return (*owned)();
      },
      kept);
}

}  // namespace tutti_test::standin_control
