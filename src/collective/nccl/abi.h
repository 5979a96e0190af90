// The part of NCCL's ABI that we use, in our own words; RCCL's is the same. Tests compare it with the real header (tests/gpu/).
#pragma once

#include <climits>
#include <cstddef>

namespace tutti::detail::nccl {

using Status = int;  // ncclResult_t
inline constexpr Status kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kInProgress = 7;

using Comm = void*;    // ncclComm_t
using Stream = void*;  // cudaStream_t, which is CUstream

struct UniqueId {  // ncclUniqueId
  char bytes[128];
};

/// ncclConfig_t as of 2.19. Later ones are longer; NCCL takes what is missing as not set.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21900;
  int blocking = INT_MIN, cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;  // INT_MIN: not set
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

enum class Op : int { kSum, kProd, kMax, kMin, kAvg };  // ncclRedOp_t
enum class Type : int {                                 // ncclDataType_t
  kInt8,
  kUInt8,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBFloat16
};

}  // namespace tutti::detail::nccl
