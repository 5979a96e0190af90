/* A module in plain C: no header, nothing to link. cc -O2 -shared -fPIC blas.c -o libblas_module.so
 * The types below are those of tvm-ffi's C interface; tutti/abi.h has all of them, with explanations. */
#include <stdint.h>

typedef struct {
  int32_t type_index; /* 0: None, 1: int, 3: float, 70: tensor */
  uint32_t zero;
  union {
    int64_t v_int64;
    double v_float64;
    void* v_obj;
  };
} Any;

typedef struct {
  struct {
    uint64_t reference_count;
    int32_t type_index;
    uint32_t padding;
    void (*deleter)(void*, int);
  } header;
  float* data;
  int32_t device_type, device_id, ndim; /* device type 1: CPU */
  uint8_t code, bits;                   /* 2, 32: float32 */
  uint16_t lanes;
  int64_t *shape, *strides; /* strides null: row-major */
  uint64_t byte_offset;
} Tensor;

void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message); /* tutti has it */

static int fail(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

static float* vector(const Any* arg, int64_t* count) {
  if (arg->type_index != 70) return 0;
  const Tensor* t = arg->v_obj;
  if (t->device_type != 1 || t->code != 2 || t->bits != 32 || t->lanes != 1 || t->ndim != 1) return 0;
  if (t->strides && t->strides[0] != 1) return 0;
  *count = t->shape[0];
  return (float*)((char*)t->data + t->byte_offset);
}

/* axpy(alpha, x, y): y += alpha * x */
int __tvm_ffi_axpy(void* self, const Any* args, int32_t num_args, Any* result) {
  (void)self, (void)result;
  if (num_args != 3 || args[0].type_index != 3) return fail("TypeError", "axpy expects (float, x, y)");
  int64_t n = 0, m = 0;
  const float* x = vector(&args[1], &n);
  float* y = vector(&args[2], &m);
  if (!x || !y) return fail("TypeError", "axpy expects float32 vectors on the CPU");
  if (n != m) return fail("ValueError", "axpy expects vectors of equal length");
  for (int64_t i = 0; i < n; ++i) y[i] += (float)args[0].v_float64 * x[i];
  return 0;
}

/* dot(x, y) -> float */
int __tvm_ffi_dot(void* self, const Any* args, int32_t num_args, Any* result) {
  (void)self;
  int64_t n = 0, m = 0;
  const float* x = num_args == 2 ? vector(&args[0], &n) : 0;
  const float* y = num_args == 2 ? vector(&args[1], &m) : 0;
  if (!x || !y || n != m) return fail("TypeError", "dot expects two float32 vectors of equal length on the CPU");
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += (double)x[i] * y[i];
  result->type_index = 3;
  result->zero = 0;
  result->v_float64 = sum;
  return 0;
}
