// A module in C++ that lets exceptions out of its C functions.
#include <stdexcept>

#include "tutti/abi.h"

struct Own : std::runtime_error {
  using std::runtime_error::runtime_error;
};

extern "C" __attribute__((visibility("default"))) int __tvm_ffi_throws(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) {
  throw Own("thrown through C");
}
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_throws_an_int(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) {
  throw 42;
}
