// A module with a real kernel: nvcc -shared -Xcompiler -fPIC -cudart static -I ../../include -I .. matmul.cu -o matmul.so
#include "gpu/matmul.h"

static __global__ void multiply(Matmul x) {
  const int64_t row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= x.n) return;
  float sum = 0;
  for (int64_t i = 0; i < x.k; ++i) sum += x.a[row * x.k + i] * x.b[i * x.n + column];
  x.c[row * x.n + column] = sum;
}

extern "C" int __tvm_ffi_matmul(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  Matmul x;
  if (matmul_of(args, num_args, &x) != 0) return -1;
  const dim3 blocks(static_cast<unsigned>((x.n + 127) / 128), static_cast<unsigned>(x.m));
  multiply<<<blocks, 128, 0, static_cast<cudaStream_t>(x.stream)>>>(x);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", cudaGetErrorString(error));
    return -1;
  }
  return 0;
}
