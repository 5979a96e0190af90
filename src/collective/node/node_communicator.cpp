// Every operation is rounds of the same three steps: each publisher copies its next piece into its own staging memory;
// all wait; each reader takes what it needs from the others' memory; all wait.
#include "collective/node/node_communicator.h"

#include <algorithm>
#include <cstring>

#include "collective/reduce.h"

namespace tutti {
namespace {

class NodeCommunicator final : public Communicator {
 public:
  NodeCommunicator(const DataPlane& plane, std::vector<int> members)
      : staging_(*plane.staging), worker_(plane.worker), members_(std::move(members)) {
    rank_ = static_cast<int>(std::find(members_.begin(), members_.end(), worker_) - members_.begin());
  }

  void allreduce(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) override {
    std::vector<const void*> sources(members.size());
    rounds(members, src.dtype, src.count, [&](int64_t begin, int64_t n) {
      publish(src, begin, n);
      hand_over(members);
      for (size_t r = 0; r < members.size(); ++r) sources[r] = staged(members[r]);
      reduce(op, src.dtype, sources.data(), static_cast<int>(sources.size()), dst.at(begin), n);
    });
  }

  void reduce_scatter(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) override {
    std::vector<const void*> sources(members.size());
    rounds(members, src.dtype, src.count, [&](int64_t begin, int64_t n) {
      publish(src, begin, n);
      hand_over(members);
      const int64_t mine = rank_ * dst.count;
      const int64_t lo = std::max(begin, mine), hi = std::min(begin + n, mine + dst.count);
      if (lo >= hi) return;
      for (size_t r = 0; r < members.size(); ++r) sources[r] = staged(members[r]) + (lo - begin) * src.dtype.size_bytes();
      reduce(op, src.dtype, sources.data(), static_cast<int>(sources.size()), dst.at(lo - mine), hi - lo);
    });
  }

  void allgather(Buffer src, Buffer dst, const std::vector<Arrival>& members) override {
    rounds(members, src.dtype, src.count, [&](int64_t begin, int64_t n) {
      publish(src, begin, n);
      hand_over(members);
      for (size_t r = 0; r < members.size(); ++r) take(members[r], 0, dst, static_cast<int64_t>(r) * src.count + begin, n);
    });
  }

  void broadcast(Buffer src, Buffer dst, int root, const std::vector<Arrival>& members) override {
    rounds(members, dst.dtype, dst.count, [&](int64_t begin, int64_t n) {
      if (rank_ == root) publish(src, begin, n);
      hand_over(members);
      if (rank_ != root || src.data != dst.data) take(members[static_cast<size_t>(root)], 0, dst, begin, n);
    });
  }

  void scatter(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
               const std::vector<Arrival>& members) override {
    int64_t total = 0, mine = 0;
    for (size_t r = 0; r < counts.size(); ++r) {
      if (static_cast<int>(r) == rank_) mine = total;
      total += counts[r];
    }
    rounds(members, dst.dtype, total, [&](int64_t begin, int64_t n) {
      if (rank_ == root) publish(src, begin, n);
      hand_over(members);
      const int64_t lo = std::max(begin, mine), hi = std::min(begin + n, mine + dst.count);
      if (lo < hi) take(members[static_cast<size_t>(root)], lo - begin, dst, lo - mine, hi - lo);
    });
  }

  void gather(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
              const std::vector<Arrival>& members) override {
    const int64_t longest = *std::max_element(counts.begin(), counts.end());
    rounds(members, src.dtype, longest, [&](int64_t begin, int64_t n) {
      if (begin < src.count) publish(src, begin, std::min(n, src.count - begin));
      hand_over(members);
      if (rank_ != root) return;
      int64_t offset = 0;
      for (size_t r = 0; r < members.size(); offset += counts[r++])
        if (begin < counts[r]) take(members[r], 0, dst, offset + begin, std::min(n, counts[r] - begin));
    });
  }

  void all_to_all(Buffer src, Buffer dst, const std::vector<Arrival>& members) override {
    const auto size = static_cast<int64_t>(members.size());
    const int64_t part = src.count / size;
    rounds(members, src.dtype, src.count, [&](int64_t begin, int64_t n) {
      publish(src, begin, n);
      hand_over(members);
      const int64_t lo = std::max(begin, rank_ * part), hi = std::min(begin + n, (rank_ + 1) * part);
      if (lo >= hi) return;
      for (int64_t r = 0; r < size; ++r)
        take(members[static_cast<size_t>(r)], lo - begin, dst, r * part + lo - rank_ * part, hi - lo);
    });
  }

  void send(Buffer src, int /*to*/, const std::vector<Arrival>& pair) override {
    rounds(pair, src.dtype, src.count, [&](int64_t begin, int64_t n) {
      publish(src, begin, n);
      hand_over(pair);
    });
  }

  void recv(Buffer dst, int from, const std::vector<Arrival>& pair) override {
    const Arrival& sender = pair[0].worker == members_[static_cast<size_t>(from)] ? pair[0] : pair[1];
    rounds(pair, dst.dtype, dst.count, [&](int64_t begin, int64_t n) {
      hand_over(pair);
      take(sender, 0, dst, begin, n);
    });
  }

 private:
  /// Calls round(begin, count) for pieces that fit the staging memory; round() does one hand-over, a second one follows.
  template <class Round>
  void rounds(const std::vector<Arrival>& members, DType dtype, int64_t count, Round&& round) {
    hand_overs_ = 0;
    const int64_t piece = static_cast<int64_t>(staging_.size_bytes) / dtype.size_bytes();
    for (int64_t begin = 0; begin < count; begin += piece) {
      round(begin, std::min(piece, count - begin));
      hand_over(members);
    }
    // even without data one hand-over: until everyone has read the arrivals, nobody may write a new one
    if (count <= 0) hand_over(members);
  }

  void hand_over(const std::vector<Arrival>& members) {
    ++hand_overs_;
    auto& mine = staging_.step(worker_);
    mine.store(mine.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    staging_.bell->ring_ordered();
    for (const Arrival& member : members) {
      auto& step = staging_.step(member.worker);
      const uint64_t target = member.step + hand_overs_;
      auto reached = [&] { return step.load(std::memory_order_seq_cst) >= target; };
      while (!wait_until(*staging_.bell, staging_.policy, Clock::now() + std::chrono::milliseconds(100), reached))
        staging_.check_alive();
    }
  }

  void publish(Buffer from, int64_t begin, int64_t n) {
    if (n > 0) std::memcpy(staging_.memory(worker_), from.at(begin), static_cast<size_t>(n * from.dtype.size_bytes()));
  }
  const char* staged(const Arrival& member) const {
    return reinterpret_cast<const char*>(staging_.memory(member.worker));
  }
  void take(const Arrival& member, int64_t at, Buffer dst, int64_t to, int64_t n) const {
    if (n <= 0) return;
    std::memcpy(dst.at(to), staged(member) + at * dst.dtype.size_bytes(), static_cast<size_t>(n * dst.dtype.size_bytes()));
  }

  const StagingArea& staging_;
  int worker_;
  int rank_ = 0;
  std::vector<int> members_;
  uint64_t hand_overs_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_node_communicator(const DataPlane& plane, const std::vector<int>& members, CommKey) {
  return std::make_unique<NodeCommunicator>(plane, members);
}

}  // namespace tutti
