#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agreement/agreement.h"
#include "core/doorbell.h"
#include "tutti/worker.h"

namespace tutti {

/// Row-major memory, as a back end sees it.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype{};
  int64_t size_bytes() const { return count * dtype.size_bytes(); }
  char* at(int64_t element) const { return static_cast<char*>(data) + element * dtype.size_bytes(); }
};

/// Also of nothing, or to itself.
inline void copy(char* to, const char* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

/// src, or a copy of it in `copy` where writing dst would overwrite what is still to be read.
Buffer disjoint(Buffer src, Buffer dst, Tensor& copy);

/// The data plane's seam: moves bytes among members that have agreed (operands are checked and fit together, everyone is
/// inside the same collective). src and dst are disjoint; of allreduce and broadcast they may be the same, of allgather src may
/// be its part of dst. An exception ends the session: the other members can't be told. Called by worker threads only.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual void allreduce(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) = 0;
  virtual void reduce_scatter(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) = 0;
  virtual void allgather(Buffer src, Buffer dst, const std::vector<Arrival>& members) = 0;
  virtual void broadcast(Buffer src, Buffer dst, int root, const std::vector<Arrival>& members) = 0;
  virtual void scatter(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
                       const std::vector<Arrival>& members) = 0;
  virtual void gather(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
                      const std::vector<Arrival>& members) = 0;
  virtual void all_to_all(Buffer src, Buffer dst, const std::vector<Arrival>& members) = 0;
  virtual void send(Buffer src, const std::vector<Arrival>& pair) = 0;  ///< of two members, the first to the second
  virtual void recv(Buffer dst, const std::vector<Arrival>& pair) = 0;
};

class PeerMemory;

/// What the workers of a node pass data by; member = worker id.
struct NodePlane {
  std::function<bool(int worker)> has;  ///< it is on this node
  std::function<std::byte*(int worker)> staging;
  std::function<std::atomic<uint64_t>&(int worker)> step;  ///< how many hand-overs this worker has made
  size_t staging_bytes = 0;                                ///< of each worker's staging memory
  bool one_process = false;                                ///< the workers are threads
  PeerMemory* peers = nullptr;
  Doorbell* bell = nullptr;
  WaitPolicy policy;
  std::function<void()> check_alive;  ///< throws when a peer process is gone
};

/// What a back end may build on.
struct DataPlane {
  int worker = 0;
  const NodePlane* node = nullptr;
  const std::vector<int32_t>* node_of = nullptr;  ///< by worker
  void* mpi_parent = nullptr;                     ///< MPI_Comm* dedicated to data, ranks = worker ids; null without MPI
};

/// One explicit table of names: "local" (one node only), "mpi" (without an MPI job: local), "auto" (local among members on one
/// node, over several nodes MPI, by two levels where each node has as many members). Creation is collective among `members`
/// (worker ids by rank), after agreement.
/// @throws UsageError  unknown name, not in this build, or not possible here
std::unique_ptr<Communicator> make_communicator(std::string_view ccl, const DataPlane& plane, const std::vector<int>& members,
                                                CommKey key);
/// The name that it stands for among these members.  @throws UsageError  as make_communicator
std::string_view resolve_ccl(std::string_view ccl, const DataPlane& plane, const std::vector<int>& members);
std::string_view compiled_ccl();  ///< "mpi": the name that init_ccl takes in every kind of session

}  // namespace tutti
