#include "collective/mpi/mpi_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "collective/mpi/mpi_types.h"
#include "collective/reduce.h"
#include "core/settings.h"

namespace tutti::detail {
namespace {

constexpr int kPairTag = 1;

class MpiCommunicator final : public HostCommunicator {
 public:
  MpiCommunicator(const DataPlane& plane, const std::vector<int>& members, CommKey key)
      : parent_(*static_cast<MPI_Comm*>(plane.mpi_parent)), members_(members), max_count_(settings().mpi_max_count) {
    rank_ = static_cast<int>(std::find(members.begin(), members.end(), plane.worker) - members.begin());
    if (key >> 56 == 2) return;  // a pair: send and recv use the parent
    comm_ = create_group(parent_, members, key);
  }

  void allreduce(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& arrivals) override {
    if (op == ReduceOp::kAvg && is_half(src.dtype))
      return wide_average(src, dst, [&](Buffer w, Buffer d) { allreduce(w, d, op, arrivals); });
    MpiElement element(src.dtype);
    const MPI_Op mpi_op = element.op(op);
    pieces(src.count, [&](int64_t begin, int n) {
      check_mpi(MPI_Allreduce(src.data == dst.data ? MPI_IN_PLACE : src.at(begin), dst.at(begin), n, element.type(), mpi_op,
                              comm_.get()),
                "MPI_Allreduce");
    });
    if (op == ReduceOp::kAvg) divide(dst.dtype, dst.data, dst.count, size());
  }

  void reduce_scatter(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& arrivals) override {
    if (op == ReduceOp::kAvg && is_half(src.dtype))
      return wide_average(src, dst, [&](Buffer w, Buffer d) { reduce_scatter(w, d, op, arrivals); });
    MpiElement element(src.dtype);
    const MPI_Op mpi_op = element.op(op);
    if (src.count <= max_count_) {
      check_mpi(MPI_Reduce_scatter_block(src.data, dst.data, static_cast<int>(dst.count), element.type(), mpi_op, comm_.get()),
                "MPI_Reduce_scatter_block");
    } else {
      for (int root = 0; root < size(); ++root)
        pieces(dst.count, [&](int64_t begin, int n) {
          check_mpi(MPI_Reduce(src.at(root * dst.count + begin), dst.at(begin), n, element.type(), mpi_op, root, comm_.get()),
                    "MPI_Reduce");
        });
    }
    if (op == ReduceOp::kAvg) divide(dst.dtype, dst.data, dst.count, size());
  }

  void allgather(Buffer src, Buffer dst, const std::vector<Arrival>&) override {
    MpiElement element(src.dtype);
    if (dst.count <= max_count_) {
      const int n = static_cast<int>(src.count);
      // in place on all members or on none
      if (src.data != dst.at(rank_ * src.count)) copy(dst, rank_ * src.count, src, 0, src.count);
      check_mpi(MPI_Allgather(MPI_IN_PLACE, n, element.type(), dst.data, n, element.type(), comm_.get()), "MPI_Allgather");
      return;
    }
    copy(dst, rank_ * src.count, src, 0, src.count);
    for (int root = 0; root < size(); ++root) broadcast_part(dst, root * src.count, src.count, root, element);
  }

  void broadcast(Buffer src, Buffer dst, int root, const std::vector<Arrival>&) override {
    MpiElement element(dst.dtype);
    if (rank_ == root && src.data != dst.data) copy(dst, 0, src, 0, dst.count);
    broadcast_part(dst, 0, dst.count, root, element);
  }

  void scatter(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts, const std::vector<Arrival>&) override {
    MpiElement element(dst.dtype);
    if (const Parts parts(counts); parts.total <= max_count_) {
      check_mpi(MPI_Scatterv(src.data, parts.counts.data(), parts.begins.data(), element.type(), dst.data,
                             static_cast<int>(dst.count), element.type(), root, comm_.get()),
                "MPI_Scatterv");
      return;
    }
    int64_t begin = 0;
    for (int r = 0; r < size(); begin += counts[static_cast<size_t>(r++)]) {
      const int64_t n = counts[static_cast<size_t>(r)];
      if (r == root && rank_ == root) copy(dst, 0, src, begin, n);
      else if (rank_ == root) send_part(src, begin, n, r, element, comm_.get());
      else if (rank_ == r) recv_part(dst, 0, n, root, element, comm_.get());
    }
  }

  void gather(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts, const std::vector<Arrival>&) override {
    MpiElement element(src.dtype);
    if (const Parts parts(counts); parts.total <= max_count_) {
      check_mpi(MPI_Gatherv(src.data, static_cast<int>(src.count), element.type(), dst.data, parts.counts.data(),
                            parts.begins.data(), element.type(), root, comm_.get()),
                "MPI_Gatherv");
      return;
    }
    int64_t begin = 0;
    for (int r = 0; r < size(); begin += counts[static_cast<size_t>(r++)]) {
      const int64_t n = counts[static_cast<size_t>(r)];
      if (r == root && rank_ == root) copy(dst, begin, src, 0, n);
      else if (rank_ == root) recv_part(dst, begin, n, r, element, comm_.get());
      else if (rank_ == r) send_part(src, 0, n, root, element, comm_.get());
    }
  }

  void all_to_all(Buffer src, Buffer dst, const std::vector<Arrival>&) override {
    MpiElement element(src.dtype);
    const int64_t part = src.count / size();
    if (src.count <= max_count_) {
      const int n = static_cast<int>(part);
      check_mpi(MPI_Alltoall(src.data, n, element.type(), dst.data, n, element.type(), comm_.get()), "MPI_Alltoall");
      return;
    }
    for (int shift = 0; shift < size(); ++shift) {
      const int to = (rank_ + shift) % size(), source = (rank_ - shift + size()) % size();
      pieces(part, [&](int64_t begin, int n) {
        check_mpi(MPI_Sendrecv(src.at(to * part + begin), n, element.type(), to, 0, dst.at(source * part + begin), n,
                               element.type(), source, 0, comm_.get(), MPI_STATUS_IGNORE),
                  "MPI_Sendrecv");
      });
    }
  }

  /// Member by member, in pieces: MPI_Alltoallv's counts are ints, and a piece more on one side is none on the other.
  void all_to_all_v(Buffer src, Buffer dst, const std::vector<int64_t>& counts, const std::vector<Arrival>&) override {
    MpiElement element(src.dtype);
    const auto before = [&](int first, int end) {
      return std::accumulate(counts.begin() + first, counts.begin() + end, int64_t{0});
    };
    for (int shift = 0; shift < size(); ++shift) {
      const int to = (rank_ + shift) % size(), from = (rank_ - shift + size()) % size();
      const auto coming = std::span(counts).subspan(members_.size());
      const int64_t sent = counts[static_cast<size_t>(to)], got = coming[static_cast<size_t>(from)];
      const int64_t at = before(0, to), into = before(size(), size() + from);
      for (int64_t begin = 0; begin < std::max(sent, got); begin += max_count_)
        check_mpi(MPI_Sendrecv(src.at(at + begin), piece(sent - begin), element.type(), begin < sent ? to : MPI_PROC_NULL, 0,
                               dst.at(into + begin), piece(got - begin), element.type(), begin < got ? from : MPI_PROC_NULL, 0,
                               comm_.get(), MPI_STATUS_IGNORE),
                  "MPI_Sendrecv");
    }
  }

  void send(Buffer src, const std::vector<Arrival>&) override {
    MpiElement element(src.dtype);
    send_part(src, 0, src.count, members_[1], element, parent_, kPairTag);
  }
  void recv(Buffer dst, const std::vector<Arrival>&) override {
    MpiElement element(dst.dtype);
    recv_part(dst, 0, dst.count, members_[0], element, parent_, kPairTag);
  }

 private:
  struct Parts {
    explicit Parts(const std::vector<int64_t>& all) {
      for (int64_t n : all) {
        counts.push_back(static_cast<int>(std::min<int64_t>(n, INT32_MAX)));
        begins.push_back(static_cast<int>(std::min<int64_t>(total, INT32_MAX)));
        total += n;
      }
    }
    std::vector<int> counts, begins;
    int64_t total = 0;
  };

  int size() const { return static_cast<int>(members_.size()); }

  static bool is_half(DType dtype) { return dtype == kFloat16 || dtype == kBFloat16; }
  /// The sum of halves may be beyond them though their average is not: they are added and divided as float32.
  template <class Reduce>
  static void wide_average(Buffer src, Buffer dst, Reduce reduce) {
    std::vector<float> from(static_cast<size_t>(src.count)), to(static_cast<size_t>(dst.count));
    widen_all(src.dtype, src.data, from.data(), src.count);
    reduce(Buffer{from.data(), src.count, kFloat32}, Buffer{to.data(), dst.count, kFloat32});
    narrow_all(dst.dtype, to.data(), dst.data, dst.count);
  }

  int piece(int64_t left) const { return static_cast<int>(std::clamp<int64_t>(left, 0, max_count_)); }
  template <class Call>
  void pieces(int64_t count, Call&& call) const {
    for (int64_t begin = 0; begin < count; begin += max_count_)
      call(begin, static_cast<int>(std::min(max_count_, count - begin)));
  }
  void broadcast_part(Buffer buffer, int64_t at, int64_t count, int root, MpiElement& element) {
    pieces(count, [&](int64_t begin, int n) {
      check_mpi(MPI_Bcast(buffer.at(at + begin), n, element.type(), root, comm_.get()), "MPI_Bcast");
    });
  }
  void send_part(Buffer buffer, int64_t at, int64_t count, int to, MpiElement& element, MPI_Comm comm, int tag = 0) {
    pieces(count, [&](int64_t begin, int n) {
      check_mpi(MPI_Send(buffer.at(at + begin), n, element.type(), to, tag, comm), "MPI_Send");
    });
  }
  void recv_part(Buffer buffer, int64_t at, int64_t count, int from, MpiElement& element, MPI_Comm comm, int tag = 0) {
    pieces(count, [&](int64_t begin, int n) {
      check_mpi(MPI_Recv(buffer.at(at + begin), n, element.type(), from, tag, comm, MPI_STATUS_IGNORE), "MPI_Recv");
    });
  }
  static void copy(Buffer to, int64_t at, Buffer from, int64_t begin, int64_t n) {
    if (n > 0) std::memmove(to.at(at), from.at(begin), static_cast<size_t>(n * to.dtype.size_bytes()));
  }

  MPI_Comm parent_;
  std::vector<int> members_;
  int64_t max_count_;  // MPI-3 counts are int: what is longer goes in pieces; tests lower it
  int rank_ = 0;
  MpiComm comm_;
};

}  // namespace

std::unique_ptr<HostCommunicator> make_mpi_communicator(const DataPlane& plane, const std::vector<int>& members, CommKey key) {
  return std::make_unique<MpiCommunicator>(plane, members, key);
}

std::shared_ptr<void> make_user_comm(const DataPlane& plane, const std::vector<int>& members, CommKey key) {
  struct Owned {
    MPI_Comm raw;
    MpiComm comm;
  };
  auto made = std::make_shared<Owned>();
  made->comm = create_group(*static_cast<MPI_Comm*>(plane.mpi_parent), members, key);
  made->raw = made->comm.get();
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  check_mpi(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler), "MPI_Comm_get_errhandler");
  check_mpi(MPI_Comm_set_errhandler(made->raw, handler), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Errhandler_free(&handler), "MPI_Errhandler_free");
  return {made, &made->raw};
}

}  // namespace tutti::detail
