#pragma once

#include <vector>

#include "control/watch/trace_file.h"
#include "control/watch/worker_state.h"
#include "core/doorbell.h"

namespace tutti::detail {

/// Looks at a session's workers from outside, whatever they do. Any thread, until Workers::close().
class Inspector {
 public:
  virtual ~Inspector() = default;
  /// What every worker does; of nodes that don't answer in time: nothing.
  /// @param with_lines  asks interpreters, too, which line they run (source_line.h)
  virtual std::vector<WorkerState> look(Clock::time_point deadline, bool with_lines) = 0;
  /// Every node writes the files of its workers' flight recorders; other nodes' some time later.
  virtual void dump(const TraceDump& dump) = 0;
};

}  // namespace tutti::detail
