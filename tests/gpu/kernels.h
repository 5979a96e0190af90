// What the functions of the module of kernels get: float32 arrays on a GPU, row-major, and numbers.
#pragma once

#include "tutti/abi.h"

/// The tensor, or null with a raised error.
inline const DLTensor* tensor_of(const TVMFFIAny* args, int32_t num_args, int32_t i, int32_t ndim) {
  if (i < num_args && args[i].type_index == kTVMFFITensor) {
    const auto* t = reinterpret_cast<const DLTensor*>(reinterpret_cast<const char*>(args[i].v_obj) + sizeof(TVMFFIObject));
    if (t->device.device_type != 1 && t->ndim == ndim && t->dtype.code == 2 && t->dtype.bits == 32) return t;
  }
  TVMFFIErrorSetRaisedFromCStr("TypeError", "expected a float32 array on a GPU: a vector to fill, matrices to multiply");
  return nullptr;
}
inline float* data_of(const DLTensor& t) { return reinterpret_cast<float*>(static_cast<char*>(t.data) + t.byte_offset); }
inline void* stream_of(const DLTensor& t) { return TVMFFIEnvGetStream(t.device.device_type, t.device.device_id); }

struct Matmul {
  const float *a, *b;
  float* c;
  int64_t m, k, n;
  void* stream;
};

/// Of matmul(a, b, c): 0, or -1 with a raised error.
inline int matmul_of(const TVMFFIAny* args, int32_t num_args, Matmul* out) {
  const DLTensor* t[3] = {};
  for (int i = 0; i < 3; ++i)
    if (!(t[i] = tensor_of(args, num_args, i, 2))) return -1;
  *out = {data_of(*t[0]), data_of(*t[1]), data_of(*t[2]), t[0]->shape[0], t[0]->shape[1], t[1]->shape[1], stream_of(*t[0])};
  return 0;
}

struct Fill {
  float* data;
  int64_t n;
  float value;
  void* stream;
};

/// Of fill_late(x, value): 0, or -1 with a raised error.
inline int fill_of(const TVMFFIAny* args, int32_t num_args, Fill* out) {
  const DLTensor* t = tensor_of(args, num_args, 0, 1);
  if (!t) return -1;
  *out = {data_of(*t), t->shape[0], num_args > 1 ? static_cast<float>(args[1].v_float64) : 0, stream_of(*t)};
  return 0;
}
