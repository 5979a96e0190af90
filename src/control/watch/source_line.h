#pragma once

#include <span>

#include "control/watch/worker_state.h"

namespace tutti::detail {

/// Adds to those that are busy, of this node, where in their interpreter's program they are. Their threads are interrupted by a
/// signal, which a system call of theirs may tell them of (EINTR): only for a person who asks why nothing goes on.
void add_source_lines(std::span<WorkerState> states, Segment& segment);

}  // namespace tutti::detail
