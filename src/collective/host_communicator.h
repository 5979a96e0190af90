#pragma once

#include "collective/communicator.h"

namespace tutti::detail {

/// A communicator of host memory: each operation is complete when its function returns.
class HostCommunicator : public Communicator {
 public:
  void start(const Operation& o) final {
    switch (o.op) {
      case CollectiveOp::kAllreduce: return allreduce(o.src, o.dst, o.reduce, *o.members);
      case CollectiveOp::kReduceScatter: return reduce_scatter(o.src, o.dst, o.reduce, *o.members);
      case CollectiveOp::kAllgather: return allgather(o.src, o.dst, *o.members);
      case CollectiveOp::kBroadcast: return broadcast(o.src, o.dst, o.root, *o.members);
      case CollectiveOp::kScatter: return scatter(o.src, o.dst, o.root, o.counts, *o.members);
      case CollectiveOp::kGather: return gather(o.src, o.dst, o.root, o.counts, *o.members);
      case CollectiveOp::kAllToAll: return all_to_all(o.src, o.dst, *o.members);
      case CollectiveOp::kAllToAllV: return all_to_all_v(o.src, o.dst, o.counts, *o.members);
      case CollectiveOp::kExchange: return exchange(o.src, *o.read, *o.members);
      case CollectiveOp::kSendRecv: return o.rank == 0 ? send(o.src, *o.members) : recv(o.dst, *o.members);
      case CollectiveOp::kBarrier:
      case CollectiveOp::kSplit: return;
    }
  }
  virtual void allreduce(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) = 0;
  virtual void reduce_scatter(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) = 0;
  virtual void allgather(Buffer src, Buffer dst, const std::vector<Arrival>& members) = 0;
  virtual void broadcast(Buffer src, Buffer dst, int root, const std::vector<Arrival>& members) = 0;
  virtual void scatter(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
                       const std::vector<Arrival>& members) = 0;
  virtual void gather(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
                      const std::vector<Arrival>& members) = 0;
  virtual void all_to_all(Buffer src, Buffer dst, const std::vector<Arrival>& members) = 0;
  /// `counts`: elements to each member, then from each.
  virtual void all_to_all_v(Buffer src, Buffer dst, const std::vector<int64_t>& counts, const std::vector<Arrival>& members) = 0;
  virtual void exchange(Buffer /*src*/, const ReadSources& /*read*/, const std::vector<Arrival>& /*members*/) {}
  virtual void send(Buffer src, const std::vector<Arrival>& pair) = 0;  ///< of two members, the first to the second
  virtual void recv(Buffer dst, const std::vector<Arrival>& pair) = 0;
};

}  // namespace tutti::detail
