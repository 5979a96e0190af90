#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agreement/collective_id.h"
#include "agreement/origin.h"
#include "agreement/signature.h"

namespace tutti::detail {

/// At most so many bytes travel with an arrival on a node.
inline constexpr size_t kAttachedBytes = 8192;
/// So few have room in its line: one cache line tells all.
inline constexpr size_t kLineBytes = 8;

/// What a member shows the others on its node beside what all must agree on. The data plane's; opaque here.
struct Attachment {
  std::array<uint64_t, 6> words{};
  bool has_bytes = false;            ///< bytes travel with the arrivals, of every member
  bool in_line = false;              ///< of mine: so few of every member that they have room in the line, where it is enough
  std::span<const std::byte> bytes;  ///< of mine: what is to travel; of others: where it lies, until ends()
};

inline constexpr size_t kMostLeft = 60;        ///< collectives that a member may leave in one command
inline constexpr size_t kMostSplitCounts = 5;  ///< counts of a split: a verdict carries those of all members

struct Arrival {
  int32_t worker = 0;
  CollectiveId id;
  Signature signature;
  std::vector<int64_t> counts;  ///< scatter, gather: on the root, the parts of all members (none: equal ones); split: color, key,
                                ///< and up to three more; kAllToAllV: elements to each member, then from each
  std::vector<int32_t> members;  ///< worker ids by rank; empty: it declined
  uint64_t step = 0;             ///< where this member's step counter stands (node-local data movement)
  uint64_t taken = 0;  ///< how many agreements this member has taken note of: who agrees waits for one more before writing anew
  /// Collectives of this command that this member left without success, with the reason's origin.
  std::vector<std::pair<CollectiveId, Origin>> left;
  // on the node only, not encoded
  Attachment attached;
  bool hears_of_all = false;  ///< of mine: whoever has moved the data has something of every member that has agreed
};
void encode(Writer& out, const Arrival& arrival);
Arrival decode_arrival(Reader& in);

std::string describe(const CollectiveId& id, const Signature& signature);  ///< "allreduce #0 (sum float32 x 1000)"

}  // namespace tutti::detail
