// device/cuda/abi.h and functions.def against CUDA's header. To compile is to pass.
#include <cuda.h>

#include <cstddef>
#include <cstdio>

#include "device/cuda/abi.h"
#include "gpu/same_abi.h"

using namespace tutti::detail::gpu;

#define TUTTI_FUNCTION(field, cuda, hip, ...) TUTTI_CUDA_FUNCTION(field, cuda, __VA_ARGS__)
#define TUTTI_CUDA_FUNCTION(field, cuda, ...) \
  static_assert(tutti_test::SameAbi<Status (*)(__VA_ARGS__), decltype(&::cuda)>::value, "another declaration: " #field);
#define TUTTI_HIP_FUNCTION(field, hip, ...)
#include "device/cuda/functions.def"

static_assert(tutti_test::SameAbi<GetProcAddress, decltype(&::cuGetProcAddress)>::value);
static_assert(kSuccess == CUDA_SUCCESS && kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && kNoDevice == CUDA_ERROR_NO_DEVICE &&
              kNotInitialized == CUDA_ERROR_NOT_INITIALIZED && kInvalidDevice == CUDA_ERROR_INVALID_DEVICE &&
              kInvalidContext == CUDA_ERROR_INVALID_CONTEXT && kInvalidHandle == CUDA_ERROR_INVALID_HANDLE &&
              kNotReady == CUDA_ERROR_NOT_READY && kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS &&
              kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(is_sticky(CUDA_ERROR_ILLEGAL_ADDRESS) && is_sticky(CUDA_ERROR_LAUNCH_TIMEOUT) && is_sticky(CUDA_ERROR_ASSERT) &&
              is_sticky(CUDA_ERROR_CONTEXT_IS_DESTROYED) && is_sticky(CUDA_ERROR_HARDWARE_STACK_ERROR) &&
              is_sticky(CUDA_ERROR_INVALID_PC) && is_sticky(CUDA_ERROR_LAUNCH_FAILED) && is_sticky(CUDA_ERROR_CONTAINED) &&
              is_sticky(CUDA_ERROR_ECC_UNCORRECTABLE) && is_sticky(CUDA_ERROR_NVLINK_UNCORRECTABLE) &&
              is_sticky(CUDA_ERROR_EXTERNAL_DEVICE) && !is_sticky(CUDA_ERROR_OUT_OF_MEMORY) && !is_sticky(CUDA_ERROR_NOT_READY));
static_assert(kNonBlocking == CU_STREAM_NON_BLOCKING && kDisableTiming == CU_EVENT_DISABLE_TIMING &&
              kPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kOnDevice == CU_MEM_LOCATION_TYPE_DEVICE && kPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(sizeof(Access) == sizeof(CUmemAccessDesc) && offsetof(Access, flags) == offsetof(CUmemAccessDesc, flags) &&
              kReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kInternalDependencies == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES);
static_assert(kReleaseThreshold == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && kReservedNow == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT &&
              kUsedNow == CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
static_assert(sizeof(Location) == sizeof(CUmemLocation) && offsetof(Location, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(PoolProperties) == sizeof(CUmemPoolProps) &&
              offsetof(PoolProperties, allocation_type) == offsetof(CUmemPoolProps, allocType) &&
              offsetof(PoolProperties, handle_types) == offsetof(CUmemPoolProps, handleTypes) &&
              offsetof(PoolProperties, location) == offsetof(CUmemPoolProps, location) &&
              offsetof(PoolProperties, max_size) == offsetof(CUmemPoolProps, maxSize) &&
              offsetof(PoolProperties, usage) == offsetof(CUmemPoolProps, usage));

int main() { std::printf("CUDA %d declares what we declare\n", CUDA_VERSION); }
