/* A function that says which build of the file it is (VERSION), and things that keep a library from loading. */
#include "tutti/abi.h"

#define EXPORT __attribute__((visibility("default")))

#ifdef VERSION
static int loads;
__attribute__((constructor)) static void count(void) { ++loads; }
EXPORT int __tvm_ffi_version(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args;
  result->type_index = kTVMFFIInt, result->v_int64 = VERSION * 10 + loads;
  return 0;
}
EXPORT int __tvm_ffi_no_function = 3;
#endif
#ifdef NEEDS_SYMBOL
int nowhere_to_be_found(void);
EXPORT int __tvm_ffi_f(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args, (void)result;
  return nowhere_to_be_found();
}
#endif
#ifdef NEEDS_TVM_SYMBOL
int TVMFFIBigIntFromByteArray(const TVMFFIByteArray* input, TVMFFIAny* out);
EXPORT int __tvm_ffi_f(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args, (void)result;
  return TVMFFIBigIntFromByteArray(0, 0);
}
#endif
#ifdef NEEDS_TVM_BACKEND
EXPORT void* __TVMBackendParallelLaunch;
#endif
#ifdef NEIGHBOUR
int neighbour(void);
EXPORT int __tvm_ffi_neighbour(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args;
  result->type_index = kTVMFFIInt, result->v_int64 = neighbour();
  return 0;
}
#endif
#ifdef IS_NEIGHBOUR
EXPORT int neighbour(void) { return 17; }
#endif
#ifdef WEIGHTS
EXPORT unsigned char weights[1 << 20] = {1};       /* most of the file: half of it has all headers */
EXPORT unsigned char* __tvm_ffi_weights = weights; /* the loader writes an address behind them */
#endif
#ifdef NO_INITIALIZATION
EXPORT int __tvm_ffi_vm_load_executable(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args;
  TVMFFIObjectHandle object = 0;
  result->type_index = kTVMFFIModule;
  const int code = TVMFFIObjectCreateOpaque(0, kTVMFFIModule, 0, &object);
  result->v_obj = object;
  return code;
}
#endif
