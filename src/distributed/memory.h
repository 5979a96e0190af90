#pragma once

#include <cstdint>
#include <optional>

#include "distributed/transition.h"

namespace tutti::distributed {

/// Blocks that are packed go in as many rounds that no worker packs or receives more than this at a time, or little more. Tests
/// make it smaller.
extern int64_t round_bytes;
int64_t rounds_of(const Transition& step);

/// What goes of a block in one of these rounds: a piece of its longest axis. Nothing: the block has gone before.
std::optional<Block> slice_of(const Block& block, int64_t round, int64_t rounds);

/// Blocks that are reduced and are not one piece in all memories are copied first, at most this much of each at a time.
inline constexpr int64_t kReducedBytes = 256 << 10;

/// What a redistribution takes at most on one worker, in bytes, besides that worker's part of `from`.
struct Peak {
  int64_t mapped;  ///< where all that a worker needs lies in memory that it can reach
  int64_t packed;  ///< where it is packed and sent
};
Peak peak(const std::vector<Transition>& steps);

}  // namespace tutti::distributed
