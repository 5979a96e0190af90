/* As compiled kernels do it: no undefined symbols, the addresses come through variables. */
#include <string.h>

#include "tutti/abi.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int (*__TVMFFIFunctionCall)(TVMFFIObjectHandle, TVMFFIAny*, int32_t, TVMFFIAny*);
EXPORT void (*__TVMFFIErrorSetRaisedFromCStr)(const char*, const char*);
EXPORT int (*__TVMFFIEnvModLookupFromImports)(TVMFFIObjectHandle, const char*, TVMFFIObjectHandle*);
EXPORT void* __tvm_ffi__library_ctx;

static int seen_by_constructor;
__attribute__((constructor)) static void look(void) {
  seen_by_constructor = *(void* volatile*)&__TVMFFIFunctionCall != 0;
} /* volatile: clang runs constructors when it compiles */

EXPORT int __tvm_ffi_call_import(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  TVMFFIObjectHandle function = NULL;
  if (!seen_by_constructor) return __TVMFFIErrorSetRaisedFromCStr("AssertionError", "the constructor came too early"), -1;
  if (__TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, "module_test.add", &function) != 0) return -1;
  return __TVMFFIFunctionCall(function, (TVMFFIAny*)args, num_args, result);
}
EXPORT int __tvm_ffi_call_missing(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args, (void)result;
  TVMFFIObjectHandle function = NULL;
  return __TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, "module_test.nowhere", &function);
}
EXPORT int __tvm_ffi_raise(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args, (void)result;
  return __TVMFFIErrorSetRaisedFromCStr("ValueError", "through a variable"), -1;
}
