// In the members' own memory: each does a fair part of the work, then all wait for each other.
#pragma once

#include "collective/buffer.h"
#include "collective/communicator.h"
#include "collective/node/hand_over.h"
#include "collective/node/peer_memory.h"
#include "tutti/worker.h"

namespace tutti::detail {

/// One collective, as one member sees it. Same contract as Communicator; the operands that are used are in reach.
struct DirectMoves {
  int rank = 0;
  Buffer src, dst;  // ours
  const NodePlane& node;
  const std::vector<Arrival>& members;
  HandOver& hand_over;

  void allreduce(ReduceOp op);
  void reduce_scatter(ReduceOp op);
  void allgather();
  void broadcast(int root, bool reaches_all);
  void relay(int root);  ///< a broadcast whose src is out of reach, but not the root's dst
  void scatter(int root, const std::vector<int64_t>& counts);
  void push_scatter(int root, const std::vector<int64_t>& counts);  ///< src is out of reach, but every dst is not
  void gather(int root, const std::vector<int64_t>& counts);
  void all_to_all();
  void all_to_all_v(const std::vector<int64_t>& counts);
  void exchange(const ReadSources& read);
  void send_recv();  // rank 0 sends to rank 1

 private:
  int64_t size() const { return std::ssize(members); }
  bool is_in_place(int64_t r) const;
  char* src_of(int64_t r, int64_t begin, int64_t bytes) const;  ///< byte `begin` of a member's src, of which so many are used
  char* dst_of(int64_t r, int64_t begin, int64_t bytes) const;
};

}  // namespace tutti::detail
