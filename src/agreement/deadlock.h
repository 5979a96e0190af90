#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agreement/collective_id.h"

namespace tutti::detail {

/// What a worker does at a moment, as far as collectives go.
struct MemberState {
  enum class Kind : uint8_t { kUnknown, kIdle, kComputes, kWaits, kMoves };
  int32_t worker = -1;
  Kind kind = Kind::kUnknown;
  std::string doing;                  ///< computing: the function or action. In a collective: its operation and operands
  CollectiveId id;                    ///< of the collective it waits or moves data in
  std::vector<int32_t> members;       ///< its
  std::vector<CollectiveId> left;     ///< of this command, without success
  std::vector<CollectiveId> joined;   ///< the latest, which a peer may not have seen yet
  std::vector<CollectiveId> started;  ///< without waiting: the latest of each communicator
  bool at_device = false;             ///< it waits for the members of one that it has started
};

/// The members that have not come to the collective that `state` waits in.
std::vector<int32_t> missing_in(const MemberState& state, std::span<const MemberState> states);

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
std::optional<Deadlock> find_deadlock(std::span<const MemberState> states, const std::function<bool(const MemberState&)>& waits);

}  // namespace tutti::detail
