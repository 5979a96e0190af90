// tutti/worker.h: what a worker function can ask and do.
#include "tutti/worker.h"

#include <fmt/format.h>

#include "control/worker/comm_handle.h"
#include "device/streams.h"

namespace tutti {
using namespace detail;
namespace {

Worker& here(const char* what) {
  if (Worker* worker = Worker::current()) return *worker;
  throw UsageError(fmt::format("{} works only inside a function that a session called on a worker", what));
}

}  // namespace

Worker& detail::CommHandle::worker() const {
  Worker& worker = here("a communicator");
  if (worker.serial() != worker_serial)
    throw UsageError("a communicator outlived the session it was made in; ask worker::world() or group() again");
  if (kind(members.key) == CommKind::kPart && worker.seq() != seq)
    throw UsageError("a communicator outlived the command it was split off in; split again, or name its workers (worker::comm)");
  if (worker.is_fork()) throw UsageError("a fork of a worker's process can't communicate; the worker itself can");
  if (worker.runs_quick()) throw UsageError("a function that is registered as quick can't communicate; register it without");
  return worker;
}

int Comm::rank() const { return handle_->members.rank; }
int Comm::size() const { return static_cast<int>(handle_->members.workers.size()); }
const std::vector<int>& Comm::workers() const { return handle_->members.workers; }

void Comm::allreduce(const Tensor& src, const Tensor& dst, ReduceOp op) const {
  handle_->run({.op = CollectiveOp::kAllreduce, .src = &src, .dst = &dst, .reduce = op});
}
void Comm::reduce_scatter(const Tensor& src, const Tensor& dst, ReduceOp op) const {
  handle_->run({.op = CollectiveOp::kReduceScatter, .src = &src, .dst = &dst, .reduce = op});
}
void Comm::allgather(const Tensor& src, const Tensor& dst) const {
  handle_->run({.op = CollectiveOp::kAllgather, .src = &src, .dst = &dst});
}
void Comm::broadcast(const Tensor& src, const Tensor& dst, int root) const {
  handle_->run({.op = CollectiveOp::kBroadcast, .src = &src, .dst = &dst, .root = root});
}
void Comm::scatter(const Tensor& src, const Tensor& dst, int root, const std::vector<int64_t>& counts) const {
  handle_->run({.op = CollectiveOp::kScatter, .src = &src, .dst = &dst, .root = root, .counts = counts});
}
void Comm::gather(const Tensor& src, const Tensor& dst, int root, const std::vector<int64_t>& counts) const {
  handle_->run({.op = CollectiveOp::kGather, .src = &src, .dst = &dst, .root = root, .counts = counts});
}
void Comm::all_to_all(const Tensor& src, const Tensor& dst) const {
  handle_->run({.op = CollectiveOp::kAllToAll, .src = &src, .dst = &dst});
}
void Comm::all_to_all(const Tensor& src, const Tensor& dst, const std::vector<int64_t>& src_counts,
                      const std::vector<int64_t>& dst_counts) const {
  handle_->run({.op = CollectiveOp::kAllToAllV, .src = &src, .dst = &dst, .counts = src_counts, .dst_counts = dst_counts});
}
void Comm::barrier() const { handle_->run({.op = CollectiveOp::kBarrier}); }

namespace {

/// A pair of workers, the sender first: it agrees and counts apart from all other collectives.
Collectives::Members pair_of(const Comm& comm, int peer, bool is_sender, const char* what) {
  if (peer < 0 || peer >= comm.size() || peer == comm.rank())
    throw UsageError(
        fmt::format("{}: peer {} of {} members on rank {}; expected another member", what, peer, comm.size(), comm.rank()));
  const int self = comm.workers()[static_cast<size_t>(comm.rank())], other = comm.workers()[static_cast<size_t>(peer)];
  const int from = is_sender ? self : other, to = is_sender ? other : self;
  return {.key = pair_key(from, to), .workers = {from, to}, .rank = is_sender ? 0 : 1};
}

}  // namespace

void Comm::send(const Tensor& src, int to) const {
  if (!src) throw UsageError("send: src is empty (it holds no tensor)");
  handle_->collectives().run(pair_of(*this, to, true, "send"), {.op = CollectiveOp::kSendRecv, .src = &src});
}
void Comm::recv(const Tensor& dst, int from) const {
  handle_->collectives().run(pair_of(*this, from, false, "recv"), {.op = CollectiveOp::kSendRecv, .dst = &dst});
}

Comm Comm::split(int color, int key) const {
  return detail::CommHandle::make(handle_->worker(), handle_->collectives().split(handle_->members, color, key));
}

namespace worker {

bool active() { return Worker::current() != nullptr; }
int id() { return here("worker::id").id(); }
int count() { return here("worker::count").layout().num_workers; }
int group_id() { return here("worker::group_id").group_id(); }
int group_size() { return here("worker::group_size").layout().group_size(); }
int num_groups() { return here("worker::num_groups").layout().num_groups; }
Device device() { return here("worker::device").device(); }
std::string ccl() { return std::string(here("worker::ccl").ccl()); }
Comm world() { return detail::CommHandle::world(here("worker::world")); }
Comm comm(const std::vector<int>& workers) {
  Worker& worker = here("worker::comm");
  return detail::CommHandle::make(worker, worker.named(workers));
}
Comm group() { return detail::CommHandle::group(here("worker::group")); }

}  // namespace worker

void* stream() {
  here("stream");
  return current_stream(worker::device());
}

}  // namespace tutti
