/* A virtual-machine module: vm_load_executable returns an object that holds a counter and a matmul's workspace. */
#include <stdlib.h>
#include <string.h>

#include "tutti/abi.h"

#define FUNCTION(name)                                                                                             \
  __attribute__((visibility("default"))) int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, \
                                                              TVMFFIAny* result)
#define UNUSED (void)self, (void)args, (void)num_args, (void)result

typedef struct {
  int64_t initialized[6];
  int64_t count;
  float* workspace;
  int64_t workspace_size;
} State;

static State* state_of(void* self) { return *(State**)((TVMFFIObject*)self + 1); }

static void destroy(void* handle) {
  State* state = handle;
  const TVMFFIByteArray name = {"module_test.destroyed", 21};
  TVMFFIObjectHandle told = NULL;
  if (TVMFFIFunctionGetGlobal(&name, &told) == 0 && told) {
    TVMFFIAny count = {.type_index = kTVMFFIInt, .v_int64 = state->count}, ignored = {0};
    TVMFFIFunctionCall(told, &count, 1, &ignored);
    TVMFFIObjectDecRef(told);
  }
  free(state->workspace);
  free(state);
}

FUNCTION(vm_load_executable) {
  UNUSED;
  TVMFFIObjectHandle object = NULL;
  if (TVMFFIObjectCreateOpaque(calloc(1, sizeof(State)), kTVMFFIModule, destroy, &object) != 0) return -1;
  result->type_index = kTVMFFIModule, result->v_obj = object;
  return 0;
}
FUNCTION(vm_initialization) {
  UNUSED;
  for (int i = 0; i < 6 && i < num_args; ++i) state_of(self)->initialized[i] = args[i].v_int64;
  return 0;
}
FUNCTION(initialized_with) {
  UNUSED;
  result->type_index = kTVMFFIInt, result->v_int64 = state_of(self)->initialized[args[0].v_int64];
  return 0;
}
FUNCTION(increment) {
  UNUSED;
  result->type_index = kTVMFFIInt, result->v_int64 = ++state_of(self)->count;
  return 0;
}
FUNCTION(matmul) { /* matmul(a[n,k], b[k,m], c[n,m]); b is transposed into the workspace */
  UNUSED;
  const DLTensor *a = (DLTensor*)(args[0].v_obj + 1), *b = (DLTensor*)(args[1].v_obj + 1), *c = (DLTensor*)(args[2].v_obj + 1);
  const int64_t n = a->shape[0], k = a->shape[1], m = b->shape[1];
  if (b->shape[0] != k || c->shape[0] != n || c->shape[1] != m) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "matmul: the shapes do not fit");
    return -1;
  }
  State* state = state_of(self);
  if (state->workspace_size < k * m) {
    state->workspace = realloc(state->workspace, (size_t)(k * m) * sizeof(float));
    state->workspace_size = k * m;
  }
  const float *A = a->data, *B = b->data;
  float* C = c->data;
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < m; ++j) state->workspace[j * k + i] = B[i * m + j];
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += A[i * k + l] * state->workspace[j * k + l];
      C[i * m + j] = sum;
    }
  return 0;
}
FUNCTION(workspace_size) {
  UNUSED;
  result->type_index = kTVMFFIInt, result->v_int64 = state_of(self)->workspace_size;
  return 0;
}
