#pragma once

#include <cstdint>
#include <vector>

#include "distributed/transition.h"

namespace tutti::distributed {

/// Workers that send each other something, directly or by way of others. Each party exchanges by itself.
struct Party {
  enum class Way {
    kBlocks,     ///< some send blocks to some
    kBroadcast,  ///< all of the root's part goes to all
    kGather      ///< all of each member's part goes to all
  };
  std::vector<int> members;  ///< in order
  Way way = Way::kBlocks;
  int root = -1;           ///< of a broadcast: the worker that sends
  bool is_even = false;    ///< of a gather: the parts have one shape
  bool is_direct = false;  ///< of a gather: each part is one piece of the result's memory
};
std::vector<Party> parties(const Transition& step);

/// Blocks that are packed go in as many rounds that no worker packs or receives more than this at a time, or little more (up to
/// four times as much, where axes are short). Tests make it smaller.
extern int64_t round_bytes;
int64_t rounds_of(const Transition& step);

/// What goes of a block in one of these rounds: a piece of its longest axis, or of several. Nothing: the block has gone before.
std::optional<Block> slice_of(const Block& block, int64_t round, int64_t rounds);

}  // namespace tutti::distributed
