// What a worker function can ask and do. All of it works only inside a function that a session called.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/export.h"
#include "tutti/tensor.h"

namespace tutti {

enum class ReduceOp { kSum, kProd, kMin, kMax, kAvg };
/// "sum", "prod", "min", "max", "avg".  @throws UsageError
TUTTI_API ReduceOp parse_reduce_op(std::string_view name);
TUTTI_API std::string to_string(ReduceOp op);

namespace detail {
struct CommHandle;
}

/// A set of workers that exchange tensors. Every operation is collective: every member calls it, in the same order,
/// inside the same command. In host memory members agree first: if one can't take part or its operands differ, all
/// members throw, within a second, and nothing pairs with a later collective. On GPUs a collective is started at
/// once. A member that differs or does not come is an error of the next wait for the device; what was written there
/// since the last wait is lost (docs/gpus.md). Tensors are row-major. src may equal dst.
/// @throws UsageError      operands wrong on this worker, or not those of the others (the message says who had what)
/// @throws RemoteError     a member failed or skips
/// @throws TransportError  a member was lost: the session is over
class TUTTI_API Comm {
 public:
  int rank() const;
  int size() const;
  const std::vector<int>& workers() const;  ///< worker ids by rank

  /// dst = op over all members of src; counts and dtypes agree. avg: the sum divided by size (integers truncate).
  /// float16 and bfloat16 are widened to float32 and rounded to nearest even. ccl "local": added up in the order of ranks,
  /// rounded once, the same bits on every member and in every run. ccl "mpi": in MPI's order, rounded after each step (avg:
  /// once). "auto" over several nodes: on each node as "local", over the nodes as "mpi". min and max of floats, on every ccl: a
  /// NaN on any member gives NaN (always the same: numpy's nan), and -0 is below +0 (IEEE 754-2019 minimum and maximum). The
  /// order of members does not matter.
  void allreduce(const Tensor& src, const Tensor& dst, ReduceOp op = ReduceOp::kSum) const;
  /// Member r gets the r-th of `size` equal parts of the reduced src: count(src) == size * count(dst).
  void reduce_scatter(const Tensor& src, const Tensor& dst, ReduceOp op = ReduceOp::kSum) const;
  /// dst = all members' src one after another: count(dst) == size * count(src).
  void allgather(const Tensor& src, const Tensor& dst) const;
  /// dst = root's src. src is read on the root only (elsewhere it may be empty).
  void broadcast(const Tensor& src, const Tensor& dst, int root = 0) const;
  /// Member r's dst = the r-th part of root's src. `counts` (on the root; elements per member) allows uneven parts.
  void scatter(const Tensor& src, const Tensor& dst, int root = 0, const std::vector<int64_t>& counts = {}) const;
  /// Root's dst = all members' src one after another. `counts` as in scatter. dst is written on the root only.
  void gather(const Tensor& src, const Tensor& dst, int root = 0, const std::vector<int64_t>& counts = {}) const;
  /// Part r of src goes to member r; dst = the parts for us, by sender. Equal parts: count(src) % size == 0.
  void all_to_all(const Tensor& src, const Tensor& dst) const;
  /// Parts of any sizes: src_counts[r] elements go to member r, dst_counts[r] come from it; the lists of each two must agree. src
  /// and dst don't overlap.
  void all_to_all(const Tensor& src, const Tensor& dst, const std::vector<int64_t>& src_counts,
                  const std::vector<int64_t>& dst_counts) const;
  /// Synchronous: returns when the receiver has the data; both ends lie in the same command.
  void send(const Tensor& src, int to) const;
  void recv(const Tensor& dst, int from) const;
  void barrier() const;
  /// Members with equal color (>= 0) form a communicator, ordered by (key, rank). It lives until the command ends; worker::comm
  /// makes one that is kept.
  Comm split(int color, int key = 0) const;

 private:
  friend struct detail::CommHandle;
  explicit Comm(std::shared_ptr<detail::CommHandle> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<detail::CommHandle> handle_;
};

namespace worker {  // on the thread that a session called, not on others that its function starts

TUTTI_API bool active();  ///< whether this thread runs a session's function
TUTTI_API int id();       ///< 0..count()-1
TUTTI_API int count();    ///< workers of the session
TUTTI_API int group_id();
TUTTI_API int group_size();
TUTTI_API int num_groups();
TUTTI_API Device device();  ///< what init_ccl gave this worker; cpu(0) before
/// The one that is in use: "nccl" where init_ccl("auto") has found GPUs for all; "auto": host memory, on a node as "local".
TUTTI_API std::string ccl();
TUTTI_API Comm world();  ///< all workers
TUTTI_API Comm group();  ///< the workers of our group; with one group the same communicator as world()
/// These workers, by rank; this one is among them. Nobody waits: each of them names the same list, in the same order, and gets
/// the same communicator. It is kept as long as the session, and found again.  @throws UsageError  no such list
TUTTI_API Comm comm(const std::vector<int>& workers);

}  // namespace worker

/// Where this worker's work for its device belongs: the stream (cudaStream_t) that collectives and modules use as well. Null: the
/// default stream; host memory has none.
TUTTI_API void* stream();
/// The same for any device, and outside of workers, where each thread has its own.
TUTTI_API void* stream(Device device);
/// What is enqueued on `then` from now on begins after what is on `first` by now: streams of `device`. On the host's memory all
/// is done at once, and nothing happens.  @throws SystemError
TUTTI_API void order_streams(Device device, void* first, void* then);
/// The same after what is by now on each stream of the device that tutti has made, and on the default one: for threads that do
/// not know which stream their tensors were written on.
TUTTI_API void order_after_all(Device device, void* then);

}  // namespace tutti
