// collective/nccl/abi.h and functions.def against the header of NCCL or RCCL. To compile is to pass.
#ifdef USE_RCCL
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

#include <cstddef>
#include <cstdio>

#include "collective/nccl/abi.h"
#include "gpu/same_abi.h"

using namespace tutti::detail::nccl;

#define TUTTI_FUNCTION(field, name, ...) \
  static_assert(tutti_test::SameAbi<Status (*)(__VA_ARGS__), decltype(&::name)>::value, "another declaration: " #name);
#if NCCL_VERSION_CODE >= 22803
#define TUTTI_NEWER_FUNCTION(field, name, since, ...) TUTTI_FUNCTION(field, name, __VA_ARGS__)
#else
#define TUTTI_NEWER_FUNCTION(field, name, since, ...)
#endif
#define TUTTI_TEXT_FUNCTION(field, name, ...) \
  static_assert(tutti_test::SameAbi<const char* (*)(__VA_ARGS__), decltype(&::name)>::value, "another declaration: " #name);
#include "collective/nccl/functions.def"

static_assert(kSuccess == ncclSuccess && kSystemError == ncclSystemError && kInvalidArgument == ncclInvalidArgument &&
              kInvalidUsage == ncclInvalidUsage && kInProgress == ncclInProgress);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(static_cast<int>(Op::kSum) == ncclSum && static_cast<int>(Op::kProd) == ncclProd &&
              static_cast<int>(Op::kMax) == ncclMax && static_cast<int>(Op::kMin) == ncclMin &&
              static_cast<int>(Op::kAvg) == ncclAvg);
static_assert(static_cast<int>(Type::kInt8) == ncclInt8 && static_cast<int>(Type::kUInt8) == ncclUint8 &&
              static_cast<int>(Type::kInt32) == ncclInt32 && static_cast<int>(Type::kUInt32) == ncclUint32 &&
              static_cast<int>(Type::kInt64) == ncclInt64 && static_cast<int>(Type::kUInt64) == ncclUint64 &&
              static_cast<int>(Type::kFloat16) == ncclFloat16 && static_cast<int>(Type::kFloat32) == ncclFloat32 &&
              static_cast<int>(Type::kFloat64) == ncclFloat64 && static_cast<int>(Type::kBFloat16) == ncclBfloat16);
// ours is the beginning of theirs
static_assert(sizeof(Config) <= sizeof(ncclConfig_t) && offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking) &&
              offsetof(Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize) &&
              offsetof(Config, min_ctas) == offsetof(ncclConfig_t, minCTAs) &&
              offsetof(Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs) &&
              offsetof(Config, net_name) == offsetof(ncclConfig_t, netName) &&
              offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));

int main() {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  const bool same = theirs.magic == ours.magic && theirs.blocking == ours.blocking && theirs.maxCTAs == ours.max_ctas &&
                    theirs.netName == ours.net_name && theirs.splitShare == ours.split_share;
  std::printf("NCCL %d declares what we declare%s\n", NCCL_VERSION_CODE, same ? "" : ", but does not initialise it so");
  return same ? 0 : 1;
}
