/* A module in plain C: every row of the ABI table as argument and as result, and calls in both directions. */
#include <stdlib.h>
#include <string.h>

#include "tutti/abi.h"

#define FUNCTION(name)                                                                                             \
  __attribute__((visibility("default"))) int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, \
                                                              TVMFFIAny* result)
#define UNUSED (void)self, (void)args, (void)num_args, (void)result

static int fail(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}
static TVMFFIByteArray bytes(const char* text) {
  TVMFFIByteArray array = {text, strlen(text)};
  return array;
}

/* Objects of our own making, counted. */
static int live;
typedef struct {
  TVMFFIObject header;
  union {
    TVMFFIByteArray bytes;
    TVMFFIShapeCell shape;
    DLTensor tensor;
    TVMFFISeqCell items;
  };
  int64_t shape_data[2];
  float data[6];
  TVMFFIAny item[2];
} Own;
static void delete_own(void* self, int flags) {
  if (flags & 2) {
    __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
    free(self);
  }
}
static Own* new_own(int32_t type_index, TVMFFIAny* result) {
  Own* own = calloc(1, sizeof *own);
  own->header.combined_ref_count = ((uint64_t)1 << 32) | 1;
  own->header.type_index = type_index;
  own->header.deleter = delete_own;
  __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
  result->type_index = type_index;
  result->v_obj = &own->header;
  return own;
}
FUNCTION(live) {
  UNUSED;
  result->type_index = kTVMFFIInt;
  result->v_int64 = __atomic_load_n(&live, __ATOMIC_SEQ_CST);
  return 0;
}

/* arguments */
FUNCTION(type_index_of) {
  UNUSED;
  result->type_index = kTVMFFIInt;
  result->v_int64 = args[0].type_index;
  return 0;
}
FUNCTION(echo) {
  UNUSED;
  return TVMFFIAnyViewToOwnedAny(&args[0], result);
}
/* the length of a string or of bytes in any form, read from the memory itself */
FUNCTION(length) {
  UNUSED;
  const TVMFFIAny* a = &args[0];
  result->type_index = kTVMFFIInt;
  switch (a->type_index) {
    case kTVMFFISmallStr:
    case kTVMFFISmallBytes: result->v_int64 = a->small_str_len; return 0;
    case kTVMFFIStr:
    case kTVMFFIBytes: result->v_int64 = (int64_t)((TVMFFIByteArray*)(a->v_obj + 1))->size; return 0;
    case kTVMFFIShape: result->v_int64 = (int64_t)((TVMFFIShapeCell*)(a->v_obj + 1))->size; return 0;
    case kTVMFFIArray: result->v_int64 = ((TVMFFISeqCell*)(a->v_obj + 1))->size; return 0;
    default: return fail("TypeError", "length of what has none");
  }
}
FUNCTION(sum) {
  UNUSED;
  const DLTensor* t = args[0].type_index == kTVMFFITensor        ? (const DLTensor*)(args[0].v_obj + 1)
                      : args[0].type_index == kTVMFFIDLTensorPtr ? (const DLTensor*)args[0].v_ptr
                                                                 : NULL;
  if (!t || t->dtype.code != 2 || t->dtype.bits != 32 || t->ndim != 1) return fail("TypeError", "expected a float32 vector");
  const float* data = (const float*)((const char*)t->data + t->byte_offset);
  double sum = 0;
  for (int64_t i = 0; i < t->shape[0]; ++i) sum += data[i * (t->strides ? t->strides[0] : 1)];
  result->type_index = kTVMFFIFloat;
  result->v_float64 = sum;
  return 0;
}
FUNCTION(scale) { /* in place */
  UNUSED;
  DLTensor* t = (DLTensor*)(args[0].v_obj + 1);
  float* data = (float*)((char*)t->data + t->byte_offset);
  for (int64_t i = 0; i < t->shape[0]; ++i) data[i] *= (float)args[1].v_float64;
  return 0;
}

/* results */
FUNCTION(make_none) {
  UNUSED;
  return 0;
}
FUNCTION(make_int) {
  UNUSED;
  result->type_index = kTVMFFIInt, result->v_int64 = -7;
  return 0;
}
FUNCTION(make_bool) {
  UNUSED;
  result->type_index = kTVMFFIBool, result->v_int64 = 1;
  return 0;
}
FUNCTION(make_float) {
  UNUSED;
  result->type_index = kTVMFFIFloat, result->v_float64 = 2.5;
  return 0;
}
FUNCTION(make_pointer) {
  UNUSED;
  result->type_index = kTVMFFIOpaquePtr, result->v_ptr = &live;
  return 0;
}
FUNCTION(is_our_pointer) {
  UNUSED;
  result->type_index = kTVMFFIBool, result->v_int64 = args[0].type_index == kTVMFFIOpaquePtr && args[0].v_ptr == &live;
  return 0;
}
FUNCTION(make_dtype) {
  UNUSED;
  const TVMFFIByteArray name = bytes("bfloat16");
  result->type_index = kTVMFFIDataType;
  return TVMFFIDataTypeFromString(&name, &result->v_dtype);
}
FUNCTION(dtype_name) {
  UNUSED;
  return TVMFFIDataTypeToString(&args[0].v_dtype, result);
}
FUNCTION(make_device) {
  UNUSED;
  result->type_index = kTVMFFIDevice, result->v_device.device_type = 2, result->v_device.device_id = 3;
  return 0;
}
FUNCTION(make_small_str) {
  UNUSED;
  const TVMFFIByteArray text = bytes("seven..");
  return TVMFFIStringFromByteArray(&text, result);
}
FUNCTION(make_str) {
  UNUSED;
  const TVMFFIByteArray text = bytes("a string that is no small one");
  return TVMFFIStringFromByteArray(&text, result);
}
FUNCTION(make_bytes) {
  UNUSED;
  const TVMFFIByteArray data = {"zero\0and more of it", 19};
  return TVMFFIBytesFromByteArray(&data, result);
}
FUNCTION(make_own_str) {
  UNUSED;
  new_own(kTVMFFIStr, result)->bytes = bytes("kept by the module");
  return 0;
}
FUNCTION(make_own_shape) {
  UNUSED;
  Own* own = new_own(kTVMFFIShape, result);
  own->shape_data[0] = 4, own->shape_data[1] = 5;
  own->shape.data = own->shape_data, own->shape.size = 2;
  return 0;
}
FUNCTION(make_own_tensor) { /* 2 x 3, column-major: 0 1 2 / 3 4 5 */
  UNUSED;
  static int64_t strides[2] = {1, 2};
  Own* own = new_own(kTVMFFITensor, result);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) own->data[i + 2 * j] = (float)(3 * i + j);
  own->shape_data[0] = 2, own->shape_data[1] = 3;
  own->tensor.data = own->data, own->tensor.device.device_type = 1, own->tensor.ndim = 2;
  own->tensor.dtype.code = 2, own->tensor.dtype.bits = 32, own->tensor.dtype.lanes = 1;
  own->tensor.shape = own->shape_data, own->tensor.strides = strides;
  return 0;
}
FUNCTION(make_own_array) {
  UNUSED;
  Own* own = new_own(kTVMFFIArray, result);
  own->item[0].type_index = kTVMFFIInt, own->item[0].v_int64 = 1;
  own->item[1].type_index = kTVMFFISmallStr, own->item[1].small_str_len = 3;
  memcpy(own->item[1].v_bytes, "two", 3);
  own->items.data = own->item, own->items.size = 2, own->items.capacity = 2;
  return 0;
}
FUNCTION(make_own_object) { /* of a type that only this module knows */
  UNUSED;
  new_own(1000, result)->data[0] = 42;
  return 0;
}
FUNCTION(read_own_object) {
  UNUSED;
  if (args[0].type_index != 1000) return fail("TypeError", "not our object");
  result->type_index = kTVMFFIFloat, result->v_float64 = ((Own*)args[0].v_obj)->data[0];
  return 0;
}
FUNCTION(make_tensor) { /* memory of tutti's */
  UNUSED;
  int64_t shape[1] = {4};
  DLTensor like = {NULL, {1, 0}, 1, {2, 32, 1}, shape, NULL, 0};
  TVMFFIObjectHandle tensor = NULL;
  if (TVMFFIEnvTensorAlloc(&like, &tensor) != 0) return -1;
  float* data = (float*)((DLTensor*)((TVMFFIObject*)tensor + 1))->data;
  for (int i = 0; i < 4; ++i) data[i] = (float)i;
  result->type_index = kTVMFFITensor, result->v_obj = tensor;
  return 0;
}

/* functions, both ways */
static int add_self(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)num_args;
  result->type_index = kTVMFFIInt, result->v_int64 = args[0].v_int64 + *(int64_t*)self;
  return 0;
}
static void free_self(void* self) {
  __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
  free(self);
}
FUNCTION(make_adder) {
  UNUSED;
  int64_t* self_of_adder = malloc(sizeof *self_of_adder);
  *self_of_adder = args[0].v_int64;
  __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
  TVMFFIObjectHandle function = NULL;
  if (TVMFFIFunctionCreate(self_of_adder, add_self, free_self, &function) != 0) return -1;
  result->type_index = kTVMFFIFunction, result->v_obj = function;
  return 0;
}
FUNCTION(apply) { /* apply(f, args...) */
  UNUSED;
  if (args[0].type_index != kTVMFFIFunction) return fail("TypeError", "expected a function");
  return TVMFFIFunctionCall(args[0].v_obj, (TVMFFIAny*)args + 1, num_args - 1, result);
}
FUNCTION(call_global) { /* call_global(name, args...) */
  UNUSED;
  TVMFFIByteArray name = {args[0].v_bytes, args[0].small_str_len};
  if (args[0].type_index == kTVMFFIStr) name = *(TVMFFIByteArray*)(args[0].v_obj + 1);
  TVMFFIObjectHandle function = NULL;
  if (TVMFFIFunctionGetGlobal(&name, &function) != 0) return -1;
  if (!function) return fail("AttributeError", "no such global function");
  const int code = TVMFFIFunctionCall(function, (TVMFFIAny*)args + 1, num_args - 1, result);
  TVMFFIObjectDecRef(function);
  return code;
}
FUNCTION(call_with_views) { /* f(DLTensor*, char*, byte array*) */
  UNUSED;
  float data[3] = {1, 2, 3};
  int64_t shape[1] = {3};
  DLTensor tensor = {data, {1, 0}, 1, {2, 32, 1}, shape, NULL, 0};
  TVMFFIByteArray raw = {"by\0tes", 6};
  TVMFFIAny views[3] = {{.type_index = kTVMFFIDLTensorPtr, .v_ptr = &tensor},
                        {.type_index = kTVMFFIRawStr, .v_c_str = "raw string"},
                        {.type_index = kTVMFFIByteArrayPtr, .v_ptr = &raw}};
  return TVMFFIFunctionCall(args[0].v_obj, views, 3, result);
}
FUNCTION(call_giving_away) { /* f(x), x as an r-value reference: f takes our reference over */
  UNUSED;
  TVMFFIAny made = {0};
  if (__tvm_ffi_make_own_str(NULL, NULL, 0, &made) != 0) return -1;
  TVMFFIObject* object = made.v_obj;
  TVMFFIAny reference = {.type_index = kTVMFFIObjectRValueRef, .v_ptr = &object};
  const int code = TVMFFIFunctionCall(args[0].v_obj, &reference, 1, result);
  if (object) return fail("RuntimeError", "the reference was not taken");
  return code;
}
static int triple(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  UNUSED;
  result->type_index = kTVMFFIInt, result->v_int64 = 3 * args[0].v_int64;
  return 0;
}
FUNCTION(register_triple) {
  UNUSED;
  const TVMFFIByteArray name = bytes("rows.triple");
  TVMFFIObjectHandle function = NULL;
  if (TVMFFIFunctionCreate(NULL, triple, NULL, &function) != 0) return -1;
  const int code = TVMFFIFunctionSetGlobal(&name, function, 1);
  TVMFFIObjectDecRef(function);
  return code;
}

/* a reference that outlives its call */
static TVMFFIObject* kept[64];
FUNCTION(keep) { /* keep(slot, tensor) */
  UNUSED;
  TVMFFIObjectIncRef(args[1].v_obj);
  kept[args[0].v_int64] = args[1].v_obj;
  return 0;
}
FUNCTION(give_back) { /* give_back(slot): the reference becomes the caller's */
  UNUSED;
  result->type_index = kTVMFFITensor, result->v_obj = kept[args[0].v_int64];
  kept[args[0].v_int64] = NULL;
  return 0;
}

/* errors */
FUNCTION(raise) { return UNUSED, fail("ValueError", "as asked"); }
FUNCTION(raise_in_parts) {
  UNUSED;
  const char* parts[3] = {"one, ", "two, ", "three"};
  TVMFFIErrorSetRaisedFromCStrParts("KeyError", parts, 3);
  return -1;
}
FUNCTION(raise_with_backtrace) {
  UNUSED;
  const TVMFFIByteArray kind = bytes("IndexError"), message = bytes("out of it"), trace = bytes("rows.c:1 in inner\n");
  const TVMFFIByteArray more = bytes("rows.c:2 in outer\n");
  TVMFFIObjectHandle error = NULL;
  if (TVMFFIErrorCreate(&kind, &message, &trace, &error) != 0) return -1;
  TVMFFIErrorCell* cell = (TVMFFIErrorCell*)((TVMFFIObject*)error + 1);
  cell->update_backtrace(error, &more, 1);
  TVMFFIErrorSetRaised(error);
  TVMFFIObjectDecRef(error);
  return -1;
}
FUNCTION(catch) { /* the message of what args[0]() raises */
  UNUSED;
  TVMFFIAny ignored = {0};
  if (TVMFFIFunctionCall(args[0].v_obj, NULL, 0, &ignored) == 0) return fail("AssertionError", "nothing was raised");
  TVMFFIObjectHandle error = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  if (!error) return fail("AssertionError", "no error is set");
  const int code = TVMFFIStringFromByteArray(&((TVMFFIErrorCell*)((TVMFFIObject*)error + 1))->message, result);
  TVMFFIObjectDecRef(error);
  return code;
}

FUNCTION(causes) { /* what args[0]() raises has no cause; one that it is given goes with it */
  UNUSED;
  TVMFFIAny ignored = {0};
  if (TVMFFIFunctionCall(args[0].v_obj, NULL, 0, &ignored) == 0) return fail("AssertionError", "nothing was raised");
  TVMFFIObjectHandle error = NULL, cause = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  TVMFFIErrorCell* cell = (TVMFFIErrorCell*)((TVMFFIObject*)error + 1);
  if (cell->cause_chain || cell->extra_context) return fail("AssertionError", "a cause that nobody gave");
  const TVMFFIByteArray kind = bytes("ValueError"), nothing = bytes("");
  if (TVMFFIErrorCreate(&kind, &nothing, &nothing, &cause) != 0) return -1;
  TVMFFIObjectIncRef(cause);
  cell->cause_chain = cause;
  TVMFFIObjectDecRef(error);
  result->type_index = kTVMFFIInt, result->v_int64 = (int64_t)(uint32_t)((TVMFFIObject*)cause)->combined_ref_count;
  return TVMFFIObjectDecRef(cause);
}

FUNCTION(raise_with_causes) { /* args[0] causes, each of the next */
  UNUSED;
  const TVMFFIByteArray kind = bytes("ValueError"), message = bytes("no row is left"), nothing = bytes("");
  TVMFFIObjectHandle error = NULL;
  if (TVMFFIErrorCreate(&kind, &message, &nothing, &error) != 0) return -1;
  for (int64_t i = 0; i < args[0].v_int64; ++i) {
    TVMFFIObjectHandle cause = error;
    if (TVMFFIErrorCreateWithCauseAndExtraContext(&kind, &message, &nothing, cause, NULL, &error) != 0) return -1;
    TVMFFIObjectDecRef(cause);
  }
  TVMFFIErrorSetRaised(error);
  TVMFFIObjectDecRef(error);
  return -1;
}

FUNCTION(stream) {
  UNUSED;
  void* before = NULL;
  if (TVMFFIEnvSetStream(2, 0, &live, &before) != 0) return -1;
  result->type_index = kTVMFFIBool, result->v_int64 = before == NULL && TVMFFIEnvGetStream(2, 0) == &live;
  return TVMFFIEnvSetStream(2, 0, NULL, NULL);
}
