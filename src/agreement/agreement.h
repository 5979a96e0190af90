// Members of a collective agree before anything that can't be cancelled is entered. This is how `collective` asks for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agreement/arrival.h"
#include "tutti/error.h"

namespace tutti::detail {

/// Given by the control plane to a worker's collectives.
class Agreement {
 public:
  virtual ~Agreement() = default;
  /// Takes the next identity on a communicator: every member does so for every collective, also for one it declines.
  virtual CollectiveId next_id(CommKey key) = 0;
  /// Blocks until the verdict; returns the arrivals of all members by rank, until the next call. `step` and `taken` of mine are
  /// filled in. Of the arrivals: worker, step, counts and what is attached.
  /// @throws ConsequenceError, UsageError (mismatch), TransportError
  virtual const std::vector<Arrival>& agree(Arrival& mine) = 0;
  /// Tells the members that this one starts the collective without waiting for them. Whoever waits for it to complete looks
  /// whether all have started the same ones. False: it can't be told to all; they must agree.
  virtual bool announce(const CollectiveId& /*id*/, const Signature& /*signature*/, const std::vector<int>& /*members*/) {
    return false;
  }
  virtual void restart_announcements(uint64_t /*since*/) {}  ///< by all members, at command `since`
  /// Data is about to move as all have agreed.
  virtual void moves() {}
  /// What agree() began is over; `well`: the data has moved.
  virtual void ends(bool well) = 0;
  /// The session is over. Returns when no other member can be in the memory of ours any more (or does not move: then after a
  /// while).
  virtual void lost() {}
  /// This member can't take part: the others fail.
  virtual void decline(const CollectiveId& id) = 0;
  /// This member fails in the middle of what all have agreed on: the others can't be told, the session is over.
  /// `what` was done, `why` it failed.
  /// @throws TransportError, or std::bad_alloc where there is no memory even for that
  [[noreturn]] virtual void broken(std::string_view what, std::string_view why) = 0;
  /// Device work of the members can't go on: all of them hear of it while they wait for theirs.
  virtual void tell_device_loss(const DeviceLoss& loss) = 0;
  virtual Origin here() const = 0;  ///< this worker and the command it runs
};

/// Thrown out of a collective that another member's failure has ended. Not reported again: its origin is.
class ConsequenceError : public RemoteError {
 public:
  ConsequenceError(Origin origin, const std::string& message) : RemoteError(message, {}), origin(origin) {}
  Origin origin;
};

}  // namespace tutti::detail
