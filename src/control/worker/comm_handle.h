#pragma once

#include "control/worker/worker.h"

namespace tutti::detail {

/// What a Comm holds: some workers, as one of them sees them. A part that a split has made ends with its command.
struct CommHandle {
  uint64_t worker_serial, seq;
  Collectives::Members members;

  static Comm make(Worker& worker, Collectives::Members members) { return Comm(make_handle(worker, std::move(members))); }
  /// The same one each time.
  static Comm world(Worker& worker) {
    auto& handle = worker.comm_handles().world;
    if (!handle) handle = make_handle(worker, worker.world());
    return Comm(handle);
  }
  static Comm group(Worker& worker) {
    auto& handle = worker.comm_handles().group;
    if (!handle) handle = make_handle(worker, worker.group());
    return Comm(handle);
  }
  static CommHandle& of(const Comm& comm) { return *comm.handle_; }

  void run(Collectives::Request request) const { collectives().run(members, std::move(request)); }
  bool exchange(const Tensor& src, const ReadSources& read) const { return collectives().exchange(members, src, read); }
  Worker& worker() const;  ///< @throws UsageError  outside of its session, or of a part's command
  Collectives& collectives() const { return worker().collectives(); }

 private:
  static std::shared_ptr<CommHandle> make_handle(Worker& worker, Collectives::Members members) {
    return std::make_shared<CommHandle>(CommHandle{worker.serial(), worker.seq(), std::move(members)});
  }
};

}  // namespace tutti::detail
