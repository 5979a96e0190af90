#pragma once

#include "control/worker.h"

namespace tutti::detail {

/// What a Comm holds: some workers, as one of them sees them. A sub-communicator ends with its command.
struct CommHandle {
  Worker* worker;
  uint64_t seq;
  Collectives::Members members;

  static Comm make(Worker& worker, Collectives::Members members) {
    return Comm(std::make_shared<CommHandle>(CommHandle{&worker, worker.seq(), std::move(members)}));
  }
  static CommHandle& of(const Comm& comm) { return *comm.handle_; }

  void run(const Collectives::Operation& operation) const { collectives().run(members, operation); }
  Collectives& collectives() const;  ///< @throws UsageError  outside of its command
};

}  // namespace tutti::detail
