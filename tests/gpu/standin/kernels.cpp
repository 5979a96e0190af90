// The module of ../kernels.cu for GPUs that are not there.
#include "gpu/kernels.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "gpu/standin/control.h"

namespace control = tutti_test::standin_control;

static float* reach(void* stream, const float* memory) {
  return reinterpret_cast<float*>(control::reach(stream, const_cast<float*>(memory)));
}

extern "C" {

[[gnu::visibility("default")]] int __tvm_ffi_matmul(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  Matmul x{};
  if (matmul_of(args, num_args, &x) != 0) return -1;
  control::launch(x.stream, [x] {
    const float *a = reach(x.stream, x.a), *b = reach(x.stream, x.b);
    float* c = reach(x.stream, x.c);
    if (!a || !b || !c) return 700;
    for (int64_t row = 0; row < x.m; ++row)
      for (int64_t column = 0; column < x.n; ++column) {
        float sum = 0;
        for (int64_t i = 0; i < x.k; ++i) sum += a[row * x.k + i] * b[i * x.n + column];
        c[row * x.n + column] = sum;
      }
    return 0;
  });
  return 0;
}

[[gnu::visibility("default")]] int __tvm_ffi_fill_late(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  Fill x{};
  if (fill_of(args, num_args, &x) != 0) return -1;
  control::launch(x.stream, [x] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    float* data = reach(x.stream, x.data);
    if (!data) return 700;
    std::fill_n(data, x.n, x.value);
    return 0;
  });
  return 0;
}

[[gnu::visibility("default")]] int __tvm_ffi_crash(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  Fill x{};
  if (fill_of(args, num_args, &x) != 0) return -1;
  control::launch(x.stream, [] { return 700; });
  return 0;
}
}
