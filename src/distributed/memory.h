#pragma once

#include <cstdint>
#include <vector>

#include "distributed/transition.h"

namespace tutti::distributed {

/// Blocks that are reduced and are not one piece in all memories are copied first, at most this much of each at a time.
inline constexpr int64_t kReducedBytes = 256 << 10;

/// What a redistribution takes at most on one worker, in bytes, besides that worker's part of `from`.
struct Peak {
  int64_t mapped;  ///< where all that a worker needs lies in memory that it can reach
  int64_t packed;  ///< where it is packed and sent
};
Peak peak(const std::vector<Transition>& steps);

}  // namespace tutti::distributed
