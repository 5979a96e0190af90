// In the members' own memory: each does a fair part of the work, then all wait for each other.
#pragma once

#include "collective/node/hand_over.h"

namespace tutti {

/// One collective, as one member sees it. Pointers by rank; null: not needed, or out of reach.
struct DirectMoves {
  int rank = 0;
  DType dtype{};
  std::vector<char*> src, dst;
  HandOver& hand_over;

  void allreduce(ReduceOp op, int64_t count);
  void reduce_scatter(ReduceOp op, int64_t part);  // parts: elements of each member
  void allgather(int64_t part);
  void broadcast(int root, int64_t count, bool reaches_all);
  void scatter(int root, const std::vector<int64_t>& counts);
  void gather(int root, const std::vector<int64_t>& counts);
  void all_to_all(int64_t part);
  void send_recv(int64_t count);  // rank 0 sends to rank 1

 private:
  int64_t size() const { return static_cast<int64_t>(src.size()); }
  int64_t bytes(int64_t elements) const { return elements * dtype.size_bytes(); }
};

}  // namespace tutti
