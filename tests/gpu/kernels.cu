// A module of real kernels: nvcc -shared -Xcompiler -fPIC -cudart static -I ../../include -I .. kernels.cu -o kernels.so
#include "gpu/kernels.h"

static __global__ void multiply(Matmul x) {
  const int64_t row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= x.n) return;
  float sum = 0;
  for (int64_t i = 0; i < x.k; ++i) sum += x.a[row * x.k + i] * x.b[i * x.n + column];
  x.c[row * x.n + column] = sum;
}

static __device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

static __global__ void fill_after(Fill x, unsigned long long wait_ns) {
  for (const unsigned long long since = nanoseconds(); nanoseconds() - since < wait_ns;) {}
  for (int64_t i = threadIdx.x; i < x.n; i += blockDim.x) x.data[i] = x.value;
}

static int status_of_launch() {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return 0;
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", cudaGetErrorString(error));
  return -1;
}

extern "C" int __tvm_ffi_matmul(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  Matmul x;
  if (matmul_of(args, num_args, &x) != 0) return -1;
  const dim3 blocks(static_cast<unsigned>((x.n + 127) / 128), static_cast<unsigned>(x.m));
  multiply<<<blocks, 128, 0, static_cast<cudaStream_t>(x.stream)>>>(x);
  return status_of_launch();
}

/// fill_late(x, value): 30 ms later.
extern "C" int __tvm_ffi_fill_late(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  Fill x;
  if (fill_of(args, num_args, &x) != 0) return -1;
  fill_after<<<1, 128, 0, static_cast<cudaStream_t>(x.stream)>>>(x, 30'000'000);
  return status_of_launch();
}

/// crash(x): writes where nothing is.
extern "C" int __tvm_ffi_crash(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  Fill x;
  if (fill_of(args, num_args, &x) != 0) return -1;
  x.data = nullptr;
  fill_after<<<1, 128, 0, static_cast<cudaStream_t>(x.stream)>>>(x, 0);
  return status_of_launch();
}
