// device/cuda/abi.h and functions.def against HIP's header. To compile is to pass.
#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdio>

#include "device/cuda/abi.h"
#include "gpu/same_abi.h"

using namespace tutti::detail::gpu;

// has overloads, of which one is C's
hipError_t allocate_from_pool(void**, size_t, hipMemPool_t, hipStream_t);
static_assert(sizeof(static_cast<decltype(&allocate_from_pool)>(&::hipMallocFromPoolAsync)) > 0);
#define hipMallocFromPoolAsync allocate_from_pool

#define TUTTI_FUNCTION(field, cuda, hip, ...) TUTTI_HIP_FUNCTION(field, hip, __VA_ARGS__)
#define TUTTI_CUDA_FUNCTION(field, cuda, ...)
#define TUTTI_HIP_FUNCTION(field, hip, ...) \
  static_assert(tutti_test::SameAbi<Status (*)(__VA_ARGS__), decltype(&::hip)>::value, "another declaration: " #field);
#include "device/cuda/functions.def"

static_assert(kSuccess == hipSuccess && kOutOfMemory == hipErrorOutOfMemory && kNoDevice == hipErrorNoDevice &&
              kNotInitialized == hipErrorNotInitialized && kInvalidDevice == hipErrorInvalidDevice &&
              kInvalidContext == hipErrorInvalidContext && kInvalidHandle == hipErrorInvalidHandle &&
              kNotReady == hipErrorNotReady && kIllegalAddress == hipErrorIllegalAddress &&
              kLaunchFailed == hipErrorLaunchFailure);
static_assert(kNonBlocking == hipStreamNonBlocking && kDisableTiming == hipEventDisableTiming &&
              kPortable == hipHostMallocPortable);
static_assert(kOnDevice == hipMemLocationTypeDevice && kPinned == hipMemAllocationTypePinned);
static_assert(sizeof(Access) == sizeof(hipMemAccessDesc) && offsetof(Access, flags) == offsetof(hipMemAccessDesc, flags) &&
              kReadWrite == hipMemAccessFlagsProtReadWrite);
static_assert(kInternalDependencies == hipMemPoolReuseAllowInternalDependencies);
static_assert(kReleaseThreshold == hipMemPoolAttrReleaseThreshold && kReservedNow == hipMemPoolAttrReservedMemCurrent &&
              kUsedNow == hipMemPoolAttrUsedMemCurrent);
static_assert(sizeof(Location) == sizeof(hipMemLocation) && offsetof(Location, id) == offsetof(hipMemLocation, id));
static_assert(sizeof(PoolProperties) == sizeof(hipMemPoolProps) &&
              offsetof(PoolProperties, allocation_type) == offsetof(hipMemPoolProps, allocType) &&
              offsetof(PoolProperties, handle_types) == offsetof(hipMemPoolProps, handleTypes) &&
              offsetof(PoolProperties, location) == offsetof(hipMemPoolProps, location));

int main() { std::printf("HIP %d declares what we declare\n", HIP_VERSION); }
