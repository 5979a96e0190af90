// The part of the ABI of CUDA's driver that we use, in our own words. HIP's is the same but for the names. Tests compare it with
// the real headers (tests/gpu/).
#pragma once

#include <cstddef>

namespace tutti::detail::gpu {

using Status = int;  // CUresult, hipError_t
inline constexpr Status kSuccess = 0, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100, kInvalidDevice = 101,
                        kInvalidContext = 201, kInvalidHandle = 400, kNotReady = 600, kIllegalAddress = 700, kLaunchFailed = 719;

/// After one of these every call for the device says the same, until the process ends (the documentation of CUresult).
constexpr bool is_sticky(Status status) {
  return status == kIllegalAddress || status == 702 || status == 709 || status == 710 ||
         (status >= 714 && status <= kLaunchFailed) || status == 214 || status == 220 || status == 226 || status == 911;
}

// Opaque: CUcontext, CUstream, CUevent, CUmemoryPool. An address of device memory (CUdeviceptr) is a pointer here, as in HIP.
using Handle = void*;

inline constexpr unsigned kNonBlocking = 1;    // flag of a stream: the default stream does not wait for it
inline constexpr unsigned kDisableTiming = 2;  // flag of an event
inline constexpr unsigned kPortable = 1;       // flag of host memory: pinned for all devices

struct Location {  // CUmemLocation
  int type, id;
};
inline constexpr int kOnDevice = 1;

struct Access {  // CUmemAccessDesc
  Location location;
  int flags;
};
inline constexpr int kReadWrite = 3;

struct PoolProperties {  // CUmemPoolProps
  int allocation_type, handle_types;
  Location location;
  void* security_attributes;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};
inline constexpr int kPinned = 1;  // the only allocation type
// attributes of a pool (unsigned long long, the first int)
inline constexpr int kInternalDependencies = 3, kReleaseThreshold = 4, kReservedNow = 5, kUsedNow = 7;

// cuGetProcAddress_v2
using GetProcAddress = Status (*)(const char* symbol, void** function, int cuda_version, unsigned long long flags, int* found);
inline constexpr int kCudaVersion = 12000;  // functions as of this version; the oldest driver that has them all

}  // namespace tutti::detail::gpu
