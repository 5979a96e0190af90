// Small messages come with the agreement; others move in the members' own memory where all can reach it, else through staging
// memory.
#include "collective/node/node_communicator.h"

#include <algorithm>

#include "collective/node/direct_moves.h"
#include "collective/node/eager_moves.h"
#include "collective/node/staged_moves.h"

namespace tutti::detail {
namespace {

class NodeCommunicator final : public HostCommunicator {
 public:
  NodeCommunicator(const DataPlane& plane, const std::vector<int>& members) : node_(*plane.node), worker_(plane.worker) {
    rank_ = static_cast<int>(std::find(members.begin(), members.end(), worker_) - members.begin());
  }

  void allreduce(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) override {
    if (members[0].attached.has_bytes) return eager_allreduce(dst, op, members);
    move(
        members, src, dst, reaches_src(members) && reaches_dst(members), [&](DirectMoves& direct) { direct.allreduce(op); },
        [&](StagedMoves& staged) { staged.allreduce(src, dst, op); });
  }

  void reduce_scatter(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) override {
    if (members[0].attached.has_bytes) return eager_reduce_scatter(dst, op, rank_, members);
    move(
        members, src, dst, reaches_src(members), [&](DirectMoves& direct) { direct.reduce_scatter(op); },
        [&](StagedMoves& staged) { staged.reduce_scatter(src, dst, op); });
  }

  void allgather(Buffer src, Buffer dst, const std::vector<Arrival>& members) override {
    if (members[0].attached.has_bytes) return eager_allgather(dst, members);
    move(
        members, src, dst, reaches_src(members), [&](DirectMoves& direct) { direct.allgather(); },
        [&](StagedMoves& staged) { staged.allgather(src, dst); });
  }

  void broadcast(Buffer src, Buffer dst, int root, const std::vector<Arrival>& members) override {
    const Arrival& from = members[static_cast<size_t>(root)];
    if (members[0].attached.has_bytes) return eager_copy(dst, from);
    move(
        members, src, dst, src_operand(from).in_reach() || dst_operand(from).in_reach(),
        [&](DirectMoves& direct) {
          src_operand(from).in_reach() ? direct.broadcast(root, reaches_dst(members)) : direct.relay(root);
        },
        [&](StagedMoves& staged) { staged.broadcast(src, dst, root); });
  }

  void scatter(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
               const std::vector<Arrival>& members) override {
    if (members[0].attached.has_bytes) return eager_scatter(dst, rank_, members[static_cast<size_t>(root)]);
    const bool pulls = src_operand(members[static_cast<size_t>(root)]).in_reach();
    move(
        members, src, dst, pulls || reaches_dst(members),
        [&](DirectMoves& direct) { pulls ? direct.scatter(root, counts) : direct.push_scatter(root, counts); },
        [&](StagedMoves& staged) { staged.scatter(src, dst, root, counts); });
  }

  void gather(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
              const std::vector<Arrival>& members) override {
    if (members[0].attached.has_bytes) return rank_ == root ? eager_allgather(dst, members) : void();
    move(
        members, src, dst, dst_operand(members[static_cast<size_t>(root)]).in_reach(),
        [&](DirectMoves& direct) { direct.gather(root, counts); },
        [&](StagedMoves& staged) { staged.gather(src, dst, root, counts); });
  }

  void all_to_all(Buffer src, Buffer dst, const std::vector<Arrival>& members) override {
    if (members[0].attached.has_bytes) return eager_all_to_all(dst, rank_, members);
    move(
        members, src, dst, reaches_src(members), [&](DirectMoves& direct) { direct.all_to_all(); },
        [&](StagedMoves& staged) { staged.all_to_all(src, dst); });
  }

  void all_to_all_v(Buffer src, Buffer dst, const std::vector<int64_t>& counts, const std::vector<Arrival>& members) override {
    move(
        members, src, dst, reaches_src(members), [&](DirectMoves& direct) { direct.all_to_all_v(counts); },
        [&](StagedMoves& staged) { staged.all_to_all_v(src, dst, counts); });
  }

  void exchange(Buffer src, const ReadSources& read, const std::vector<Arrival>& members) override {
    const auto may_be_read = [](const Operand& o) { return o.where == Operand::Where::kNone || o.in_reach(); };
    if (!std::ranges::all_of(members, [&](const Arrival& a) { return may_be_read(src_operand(a)); })) return;
    HandOver hand_over(node_, worker_, members);
    DirectMoves moves{rank_, src, {}, node_, members, hand_over};
    moves.exchange(read);
  }

  void send(Buffer src, const std::vector<Arrival>& pair) override { send_recv(src, {}, pair); }
  void recv(Buffer dst, const std::vector<Arrival>& pair) override { send_recv({}, dst, pair); }

 private:
  void send_recv(Buffer src, Buffer dst, const std::vector<Arrival>& pair) {
    if (!pair[0].attached.has_bytes)
      move(
          pair, src, dst, src_operand(pair[0]).in_reach() && dst_operand(pair[1]).in_reach(),
          [&](DirectMoves& direct) { direct.send_recv(); }, [&](StagedMoves& staged) { staged.send_recv(src, dst); });
    else if (dst.data) eager_copy(dst, pair[0]);
  }

  static bool reaches_src(const std::vector<Arrival>& members) {
    return std::all_of(members.begin(), members.end(), [](const Arrival& a) { return src_operand(a).in_reach(); });
  }
  static bool reaches_dst(const std::vector<Arrival>& members) {
    return std::all_of(members.begin(), members.end(), [](const Arrival& a) { return dst_operand(a).in_reach(); });
  }

  template <class Direct, class Staged>
  void move(const std::vector<Arrival>& members, Buffer src, Buffer dst, bool in_reach, Direct direct, Staged staged) {
    HandOver hand_over(node_, worker_, members);
    if (!in_reach) {
      StagedMoves moves{rank_, node_, members, hand_over};
      return staged(moves);
    }
    DirectMoves moves{rank_, src, dst, node_, members, hand_over};
    direct(moves);
  }

  const NodePlane& node_;
  int worker_;
  int rank_ = 0;
};

}  // namespace

std::unique_ptr<HostCommunicator> make_node_communicator(const DataPlane& plane, const std::vector<int>& members) {
  return std::make_unique<NodeCommunicator>(plane, members);
}

}  // namespace tutti::detail
