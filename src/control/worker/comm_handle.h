#pragma once

#include "control/worker/worker.h"

namespace tutti::detail {

/// What a Comm holds: some workers, as one of them sees them. A part that a split has made ends with its command.
struct CommHandle {
  uint64_t worker_serial, seq;
  Collectives::Members members;

  static Comm make(Worker& worker, Collectives::Members members) {
    return Comm(std::make_shared<CommHandle>(CommHandle{worker.serial(), worker.seq(), std::move(members)}));
  }
  static CommHandle& of(const Comm& comm) { return *comm.handle_; }

  void run(Collectives::Request request) const { collectives().run(members, std::move(request)); }
  bool exchange(const Tensor& src, const ReadSources& read) const { return collectives().exchange(members, src, read); }
  Worker& worker() const;  ///< @throws UsageError  outside of its session, or of a part's command
  Collectives& collectives() const { return worker().collectives(); }
};

}  // namespace tutti::detail
