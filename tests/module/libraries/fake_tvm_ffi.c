/* Stands for libtvm_ffi: raised errors and a registry of its own, and counts who uses them. */
#include <stdlib.h>
#include <string.h>

#include "tutti/abi.h"

#define EXPORT __attribute__((visibility("default")))

static __thread TVMFFIObject* raised;
static _Atomic int uses;
EXPORT int fake_tvm_ffi_uses(void) { return uses; }

EXPORT void TVMFFIErrorSetRaised(TVMFFIObjectHandle error) {
  ++uses;
  __atomic_fetch_add(&((TVMFFIObject*)error)->combined_ref_count, 1, __ATOMIC_RELAXED);
  raised = error;
}
EXPORT void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle* out) {
  ++uses;
  *out = raised;
  raised = NULL;
}

/* one function object in the registry: ffi.ModuleGetFunction of a module of its own type */
static int answer(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args;
  result->type_index = kTVMFFIInt, result->v_int64 = 42;
  return 0;
}
static void immortal(void* self, int flags) { (void)self, (void)flags; }
typedef struct {
  TVMFFIObject header;
  TVMFFIFunctionCell cell;
} Function;
static Function answer_function = {{((uint64_t)1 << 32) | 1, kTVMFFIFunction, 0, immortal}, {answer, NULL}};
static int get_function(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)num_args;
  const TVMFFIAny* name = &args[1];
  if (name->type_index == kTVMFFISmallStr && name->small_str_len == 6 && memcmp(name->v_bytes, "answer", 6) == 0) {
    __atomic_fetch_add(&answer_function.header.combined_ref_count, 1, __ATOMIC_RELAXED);
    result->type_index = kTVMFFIFunction, result->v_obj = &answer_function.header;
  } else if (name->type_index == kTVMFFIStr) { /* vm_initialization */
    __atomic_fetch_add(&answer_function.header.combined_ref_count, 1, __ATOMIC_RELAXED);
    result->type_index = kTVMFFIFunction, result->v_obj = &answer_function.header;
  }
  return 0;
}
static Function get_function_function = {{((uint64_t)1 << 32) | 1, kTVMFFIFunction, 0, immortal}, {get_function, NULL}};

EXPORT int TVMFFIFunctionGetGlobal(const TVMFFIByteArray* name, TVMFFIObjectHandle* out) {
  ++uses;
  *out = NULL;
  if (name->size == 21 && memcmp(name->data, "ffi.ModuleGetFunction", 21) == 0) {
    __atomic_fetch_add(&get_function_function.header.combined_ref_count, 1, __ATOMIC_RELAXED);
    *out = &get_function_function;
  }
  return 0;
}
