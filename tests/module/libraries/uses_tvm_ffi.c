/* Links libtvm_ffi: that one is used, for this module and all others. */
#include "tutti/abi.h"

#define FUNCTION(name)                                                                                             \
  __attribute__((visibility("default"))) int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, \
                                                              TVMFFIAny* result)
#define UNUSED (void)self, (void)args, (void)num_args, (void)result

int fake_tvm_ffi_uses(void);

FUNCTION(uses) {
  UNUSED;
  result->type_index = kTVMFFIInt, result->v_int64 = fake_tvm_ffi_uses();
  return 0;
}
FUNCTION(raise) { return UNUSED, TVMFFIErrorSetRaisedFromCStr("ValueError", "by way of libtvm_ffi"), -1; }
#ifdef VIRTUAL_MACHINE
FUNCTION(vm_load_executable) { /* a module object of TVM's: its functions are found by ffi.ModuleGetFunction */
  UNUSED;
  TVMFFIObjectHandle object = 0;
  if (TVMFFIObjectCreateOpaque(0, kTVMFFIModule, 0, &object) != 0) return -1;
  result->type_index = kTVMFFIModule, result->v_obj = object;
  return 0;
}
#endif
