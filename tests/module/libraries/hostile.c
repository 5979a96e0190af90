/* What a module may do wrong. docs/errors.md states what comes of each. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tutti/abi.h"

#define FUNCTION(name)                                                                                             \
  __attribute__((visibility("default"))) int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, \
                                                              TVMFFIAny* result)
#define UNUSED (void)self, (void)args, (void)num_args, (void)result

static void no_deleter(void* self, int flags) { (void)self, (void)flags; }
static int data_not_code;

typedef struct Object {
  TVMFFIObject header;
  union {
    TVMFFIByteArray bytes;
    DLTensor tensor;
    TVMFFISeqCell items;
    TVMFFIShapeCell shape;
    TVMFFIFunctionCell function;
  };
  struct Object* next;
} Object;
static Object* lost; /* on purpose: who returns rubbish does not get it freed */
static Object* object(int32_t type_index, TVMFFIAny* result) {
  Object* made = calloc(1, sizeof *made);
  made->next = __atomic_load_n(&lost, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&lost, &made->next, made, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  made->header.combined_ref_count = ((uint64_t)1 << 32) | 1;
  made->header.type_index = type_index;
  made->header.deleter = no_deleter;
  result->type_index = type_index;
  result->v_obj = &made->header;
  return made;
}
/* a page that nobody may read, now or later: one that is given back may become another thread's */
static void* unmapped(void) { return mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

FUNCTION(garbage_type_index) { return UNUSED, result->type_index = 37, 0; }
FUNCTION(negative_type_index) { return UNUSED, result->type_index = -5, 0; }
FUNCTION(null_object) { return UNUSED, result->type_index = kTVMFFITensor, result->v_obj = NULL, 0; }
FUNCTION(wild_object) { return UNUSED, result->type_index = kTVMFFIStr, result->v_obj = (TVMFFIObject*)0x4242424242424240, 0; }
FUNCTION(misaligned_object) {
  return UNUSED, result->type_index = kTVMFFIStr, result->v_obj = (TVMFFIObject*)((char*)&data_not_code + 1), 0;
}
FUNCTION(unmapped_object) { return UNUSED, result->type_index = kTVMFFIStr, result->v_obj = unmapped(), 0; }
FUNCTION(another_type) { return UNUSED, object(kTVMFFIShape, result), result->type_index = kTVMFFITensor, 0; }
FUNCTION(no_references) { return UNUSED, object(kTVMFFIStr, result)->header.combined_ref_count = 0, 0; }
FUNCTION(deleter_no_code) {
  UNUSED;
  object(kTVMFFIStr, result)->header.deleter = (void (*)(void*, int))(uintptr_t)&data_not_code;
  return 0;
}
FUNCTION(dangling_string) {
  UNUSED;
  Object* s = object(kTVMFFIStr, result);
  s->bytes.data = unmapped(), s->bytes.size = 100;
  return 0;
}
FUNCTION(endless_string) {
  UNUSED;
  Object* s = object(kTVMFFIStr, result);
  s->bytes.data = "short", s->bytes.size = (size_t)-1;
  return 0;
}
FUNCTION(small_string_of_99) { return UNUSED, result->type_index = kTVMFFISmallStr, result->small_str_len = 99, 0; }
FUNCTION(dangling_tensor) {
  UNUSED;
  static int64_t shape[1] = {1000};
  Object* t = object(kTVMFFITensor, result);
  t->tensor = (DLTensor){unmapped(), {1, 0}, 1, {2, 32, 1}, shape, NULL, 0};
  return 0;
}
FUNCTION(tensor_of_minus_one_dimensions) {
  UNUSED;
  object(kTVMFFITensor, result)->tensor = (DLTensor){&data_not_code, {1, 0}, -1, {2, 32, 1}, NULL, NULL, 0};
  return 0;
}
FUNCTION(tensor_of_negative_extent) {
  UNUSED;
  static int64_t shape[2] = {-4, 2};
  object(kTVMFFITensor, result)->tensor = (DLTensor){&data_not_code, {1, 0}, 2, {2, 32, 1}, shape, NULL, 0};
  return 0;
}
FUNCTION(tensor_of_too_many) {
  UNUSED;
  static int64_t shape[3] = {INT64_MAX, INT64_MAX, 7};
  object(kTVMFFITensor, result)->tensor = (DLTensor){&data_not_code, {1, 0}, 3, {2, 32, 1}, shape, NULL, 0};
  return 0;
}
FUNCTION(tensor_without_dtype) {
  UNUSED;
  static int64_t shape[1] = {1};
  object(kTVMFFITensor, result)->tensor = (DLTensor){&data_not_code, {1, 0}, 1, {0, 0, 0}, shape, NULL, 0};
  return 0;
}
FUNCTION(array_of_rubbish) {
  UNUSED;
  static TVMFFIAny items[2] = {{.type_index = kTVMFFIInt}, {.type_index = 55}};
  object(kTVMFFIArray, result)->items = (TVMFFISeqCell){items, 2, 2, NULL};
  return 0;
}
FUNCTION(array_inside_itself) {
  UNUSED;
  TVMFFIAny* item = calloc(1, sizeof *item);
  Object* a = object(kTVMFFIArray, result);
  a->items = (TVMFFISeqCell){item, 1, 1, NULL};
  *item = *result;
  return 0;
}
FUNCTION(endless_array) {
  UNUSED;
  object(kTVMFFIArray, result)->items = (TVMFFISeqCell){&data_not_code, INT64_MAX, INT64_MAX, NULL};
  return 0;
}
FUNCTION(function_no_code) {
  return UNUSED, object(kTVMFFIFunction, result)->function.safe_call = (TVMFFISafeCallType)(uintptr_t)&data_not_code, 0;
}
FUNCTION(function_of_the_kernel) {
  return UNUSED, object(kTVMFFIFunction, result)->function.safe_call = (TVMFFISafeCallType)(uintptr_t)0xffffffffff600040, 0;
}
FUNCTION(local_char_pointer) { return UNUSED, result->type_index = kTVMFFIRawStr, result->v_c_str = "borrowed", 0; }

FUNCTION(error_not_set) { return UNUSED, -1; }
FUNCTION(error_and_success) { return UNUSED, TVMFFIErrorSetRaisedFromCStr("ValueError", "left over"), 0; }
FUNCTION(other_code) { return UNUSED, 12345; }
FUNCTION(null_error_texts) { return UNUSED, TVMFFIErrorSetRaisedFromCStr(NULL, NULL), -1; }
FUNCTION(error_no_object) {
  return UNUSED, object(kTVMFFIShape, result), TVMFFIErrorSetRaised(result->v_obj), result->type_index = 0, -1;
}
FUNCTION(long_error) {
  UNUSED;
  char* message = malloc(10000001);
  memset(message, 'x', 10000000);
  message[10000000] = 0;
  TVMFFIErrorSetRaisedFromCStr("ValueError", message);
  free(message);
  return -1;
}
FUNCTION(releases_its_argument) { return UNUSED, TVMFFIObjectDecRef(args[0].v_obj), 0; }

FUNCTION(call) { /* call(name): for recursion */
  UNUSED;
  TVMFFIByteArray name = *(TVMFFIByteArray*)(args[0].v_obj + 1);
  TVMFFIObjectHandle function = NULL;
  if (TVMFFIFunctionGetGlobal(&name, &function) != 0) return -1;
  const int code = TVMFFIFunctionCall(function, (TVMFFIAny*)args, num_args, result);
  TVMFFIObjectDecRef(function);
  return code;
}
FUNCTION(exit) { return UNUSED, exit(3), 0; }
