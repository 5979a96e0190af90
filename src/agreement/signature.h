#pragma once

#include <cstdint>
#include <string>

#include "tutti/worker.h"

namespace tutti::detail {

enum class CollectiveOp : uint8_t {
  kAllreduce,
  kReduceScatter,
  kAllgather,
  kBroadcast,
  kScatter,
  kGather,
  kAllToAll,
  kSendRecv,
  kBarrier,
  kSplit,
  kAllToAllV,  ///< with parts of uneven sizes
  kExchange    ///< each member reads what it wants of the others' src
};
const char* to_string(CollectiveOp op);
/// Parts of a root, who may list them.
inline bool has_parts(CollectiveOp op) { return op == CollectiveOp::kScatter || op == CollectiveOp::kGather; }
/// Operands that the members' signatures tell.
inline bool has_operands(CollectiveOp op) {
  return op != CollectiveOp::kBarrier && op != CollectiveOp::kSplit && op != CollectiveOp::kExchange;
}

/// What must be equal on all members.
struct Signature {
  CollectiveOp op = CollectiveOp::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype{};
  int32_t device_type = dl::kCPU;
  int32_t root = 0;
  int64_t count = 0;  ///< elements; in scatter and gather this member's own part; kAllToAllV: what it gets
  bool operator==(const Signature&) const = default;
};

std::string describe(const Signature& signature);  ///< "allreduce sum of 1000 float32"

}  // namespace tutti::detail
