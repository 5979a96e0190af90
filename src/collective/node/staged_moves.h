// Through the members' staging memory, for operands that the others can't reach: pieces go through its halves in turns, so that
// one hand-over a piece is enough.
#pragma once

#include "collective/buffer.h"
#include "collective/node/hand_over.h"
#include "tutti/worker.h"

namespace tutti::detail {

/// One collective, as one member sees it. Same contract as Communicator.
struct StagedMoves {
  int rank = 0;
  const NodePlane& node;
  const std::vector<Arrival>& members;
  HandOver& hand_over;

  void allreduce(Buffer src, Buffer dst, ReduceOp op);
  void reduce_scatter(Buffer src, Buffer dst, ReduceOp op);
  void allgather(Buffer src, Buffer dst);
  void broadcast(Buffer src, Buffer dst, int root);
  void scatter(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts);
  void gather(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts);
  void all_to_all(Buffer src, Buffer dst);
  void all_to_all_v(Buffer src, Buffer dst, const std::vector<int64_t>& counts);
  void send_recv(Buffer src, Buffer dst);  // rank 0 sends to rank 1
  /// Everyone has elements cut(rank) .. cut(rank + 1) of dst, and gets the others'.
  void exchange(Buffer dst, const std::function<int64_t(int64_t rank)>& cut);

 private:
  int64_t size() const { return static_cast<int64_t>(members.size()); }
  char* staging(int64_t rank) const { return reinterpret_cast<char*>(node.staging(members[static_cast<size_t>(rank)].worker)); }
  template <class Publish, class Take>
  void in_turns(int64_t count, int64_t most, int64_t half_bytes, Publish publish, Take take);
};

}  // namespace tutti::detail
