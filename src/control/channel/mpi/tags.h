#pragma once

namespace tutti::detail {

/// Messages on the control communicator by what they are for.
enum class Tag : int { kPool = 1, kSegment = 2, kReady = 3, kLeader = 4 };

}  // namespace tutti::detail
