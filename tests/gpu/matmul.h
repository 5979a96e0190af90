// The arguments of matmul(a, b, c), as a module gets them: float32 matrices on a GPU, row-major.
#pragma once

#include "tutti/abi.h"

struct Matmul {
  const float *a, *b;
  float* c;
  int64_t m, k, n;
  void* stream;
};

/// 0, or -1 with a raised error.
inline int matmul_of(const TVMFFIAny* args, int32_t num_args, Matmul* out) {
  const DLTensor* t[3] = {};
  for (int i = 0; i < 3; ++i) {
    if (num_args == 3 && args[i].type_index == kTVMFFITensor)
      t[i] = reinterpret_cast<const DLTensor*>(reinterpret_cast<const char*>(args[i].v_obj) + sizeof(TVMFFIObject));
    if (!t[i] || t[i]->device.device_type == 1 || t[i]->ndim != 2 || t[i]->dtype.code != 2 || t[i]->dtype.bits != 32) {
      TVMFFIErrorSetRaisedFromCStr("TypeError", "matmul expects three float32 matrices on a GPU");
      return -1;
    }
  }
  const auto data = [&](int i) { return reinterpret_cast<float*>(static_cast<char*>(t[i]->data) + t[i]->byte_offset); };
  *out = {data(0),
          data(1),
          data(2),
          t[0]->shape[0],
          t[0]->shape[1],
          t[1]->shape[1],
          TVMFFIEnvGetStream(t[0]->device.device_type, t[0]->device.device_id)};
  return 0;
}
