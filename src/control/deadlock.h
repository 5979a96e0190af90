#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/worker_state.h"

namespace tutti {

/// Workers that wait in collectives for each other in circles, so that none can come.
struct Deadlock {
  std::string message;  ///< the same whoever finds it
  std::vector<int32_t> workers;
  std::vector<CollectiveId> ids;  ///< what they wait in
  bool has(int worker) const;
  bool operator==(const Deadlock&) const = default;
};

/// Of states that were read at about the same time. `waits`: whether what a state says of its collective (no verdict has fallen)
/// is certain. What two looks in a row find alike is true: an id comes once, so all have waited from the first to the second.
std::optional<Deadlock> find_deadlock(std::span<const WorkerState> states, const std::function<bool(const WorkerState&)>& waits);

}  // namespace tutti
