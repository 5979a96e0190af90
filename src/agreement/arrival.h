#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agreement/collective_id.h"
#include "agreement/origin.h"
#include "agreement/signature.h"

namespace tutti {

/// Where the other members on the node find an operand.
struct Operand {
  enum class Where : uint8_t {
    kForeign,  ///< they can't reach it
    kHere,     ///< in the process that all members share; `offset` is its address
    kArena     ///< in an extent of its process's arena
  };
  Where where = Where::kForeign;
  int32_t fd = -1;
  uint64_t extent = 0, offset = 0, size_bytes = 0;
  bool in_reach() const { return where != Where::kForeign; }
};

/// Up to so many bytes travel with the arrival on a node.
inline constexpr size_t kEagerBytes = 8192;

struct Arrival {
  int32_t worker = 0;
  CollectiveId id;
  Signature signature;
  std::vector<int64_t> counts;  ///< scatter, gather: on the root, the parts of all members (none: equal ones); split: color, key;
                                ///< kAllToAllV: elements to each member, then from each
  std::vector<int32_t> members;  ///< worker ids by rank
  uint64_t step = 0;             ///< where this member's step counter stands (node-local data movement)
  uint64_t taken = 0;            ///< where its count of agreements stands: it may not write anew before all have taken
  /// Collectives of this command that this member left without success, with the reason's origin.
  std::vector<std::pair<CollectiveId, Origin>> left;
  // on the node only, not encoded
  Operand src = {}, dst = {};
  bool is_eager = false;             ///< the data travels with the arrivals: what is in `eager`
  std::span<const std::byte> eager;  ///< of mine: what is to travel; of others: where it lies, until ends()
  bool hears_of_all = false;         ///< of mine: whoever has moved the data has something of every member that has agreed
};
void encode(Writer& out, const Arrival& arrival);
Arrival decode_arrival(Reader& in);

std::string describe(const CollectiveId& id, const Signature& signature);  ///< "allreduce #0 (sum float32 x 1000)"

}  // namespace tutti
