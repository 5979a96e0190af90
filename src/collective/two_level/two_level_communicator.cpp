// Members on several nodes: what is on a node goes through its memory, so that fewer bytes are on the wire. The members with the
// same place on their nodes make a rail, an MPI communicator of its own. What two levels don't help is plain MPI.
#include "collective/two_level/two_level_communicator.h"

#include <algorithm>
#include <map>

#include "collective/mpi/mpi_communicator.h"
#include "collective/node/hand_over.h"
#include "collective/node/peer_memory.h"
#include "collective/node/staged_moves.h"
#include "collective/reduce.h"

namespace tutti::detail {
namespace {

constexpr int64_t kAllreduceWorthIt = 64 << 10, kBroadcastWorthIt = 1 << 20;  // bytes from which plain MPI is slower
constexpr int64_t kBroadcastPiece = 1 << 20,
                  kBroadcastPieces = 4;  // while one goes over the wire, the one before is copied on the node

std::map<int32_t, std::vector<int>> ranks_by_node(const DataPlane& plane, const std::vector<int>& members) {
  std::map<int32_t, std::vector<int>> nodes;
  for (size_t r = 0; r < members.size(); ++r)
    nodes[plane.node_of->at(static_cast<size_t>(members[r]))].push_back(static_cast<int>(r));
  return nodes;
}

class TwoLevelCommunicator final : public HostCommunicator {
 public:
  TwoLevelCommunicator(const DataPlane& plane, const std::vector<int>& members, CommKey key)
      : node_(*plane.node),
        worker_(plane.worker),
        make_flat_([plane, members, key] { return make_mpi_communicator(plane, members, key); }) {
    place_.resize(members.size());
    node_index_.resize(members.size());
    int index = 0;
    for (const auto& [node, ranks] : ranks_by_node(plane, members)) {
      for (size_t i = 0; i < ranks.size(); ++i) {
        place_[static_cast<size_t>(ranks[i])] = static_cast<int>(i);
        node_index_[static_cast<size_t>(ranks[i])] = index;
      }
      ++index;
      if (node_.has(members[static_cast<size_t>(ranks[0])])) local_ranks_ = ranks;
    }
    for (size_t i = 0; i < local_ranks_.size(); ++i)
      if (members[static_cast<size_t>(local_ranks_[i])] == worker_) my_place_ = static_cast<int>(i);
    std::vector<int> rail;  // by node
    for (const auto& [node, ranks] : ranks_by_node(plane, members))
      rail.push_back(members[static_cast<size_t>(ranks[static_cast<size_t>(my_place_)])]);
    rail_ = make_mpi_communicator(plane, rail, key);
  }

  /// Each reduces a slice of what is on its node, the rail reduces it over the nodes, and it is stored into every dst of the
  /// node.
  void allreduce(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) override {
    const bool needs_wide = op == ReduceOp::kAvg && (src.dtype == kFloat16 || src.dtype == kBFloat16);
    if (src.size_bytes() < kAllreduceWorthIt || needs_wide) return flat().allreduce(src, dst, op, members);
    const ReduceOp partial = op == ReduceOp::kAvg ? ReduceOp::kSum : op;
    const std::vector<Arrival> local = on_node(members);
    HandOver hand_over(node_, worker_, local);
    StagedMoves staged{my_place_, node_, local, hand_over};
    const auto size = std::ssize(local);
    const auto cut = [&](int64_t place) { return place == size ? dst.count : dst.count / size / 64 * 64 * place; };
    const int64_t begin = cut(my_place_), count = cut(my_place_ + 1) - begin;
    const bool in_reach = std::all_of(local.begin(), local.end(),
                                      [](const Arrival& a) { return src_operand(a).in_reach() && dst_operand(a).in_reach(); });
    const Buffer slice{dst.at(begin), count, dst.dtype};
    if (in_reach) {
      std::vector<const char*> from;
      from.reserve(local.size());
      for (const Arrival& a : local)
        from.push_back(a.worker == worker_
                           ? src.at(begin)
                           : node_.peers->map(a.worker, src_operand(a), begin * src.dtype.size_bytes(), slice.size_bytes()));
      char* const to[] = {slice.at(0)};
      reduce(partial, src.dtype, from, to, count);
    } else {
      staged.allreduce(src, dst, partial);
    }
    rail_->allreduce(slice, slice, partial, {});
    if (op == ReduceOp::kAvg) divide(dst.dtype, slice.data, count, static_cast<int>(members.size()));
    if (!in_reach) return staged.exchange(dst, cut);
    for (const Arrival& a : local)
      if (a.worker != worker_)
        copy(node_.peers->map(a.worker, dst_operand(a), begin * dst.dtype.size_bytes(), slice.size_bytes()), slice.at(0),
             slice.size_bytes());
    hand_over();
  }

  /// The root's rail carries it to one member of each node, piece by piece; the others copy from that one.
  void broadcast(Buffer src, Buffer dst, int root, const std::vector<Arrival>& members) override {
    if (dst.size_bytes() < kBroadcastWorthIt) return flat().broadcast(src, dst, root, members);
    const int carrier = place_[static_cast<size_t>(root)], rail_root = node_index_[static_cast<size_t>(root)];
    const bool carries = my_place_ == carrier, is_root = members[static_cast<size_t>(root)].worker == worker_;
    const std::vector<Arrival> local = on_node(members);
    const Arrival& from = local[static_cast<size_t>(carrier)];
    const Operand source = from.worker == members[static_cast<size_t>(root)].worker ? src_operand(from) : dst_operand(from);
    const Buffer mine = is_root ? src : dst;
    HandOver hand_over(node_, worker_, local);
    const bool in_reach =
        source.in_reach();  // on this node: on others it may be otherwise, so the pieces on the rail are the same
    const int64_t most = std::max(kBroadcastPiece / dst.dtype.size_bytes(), dst.count / kBroadcastPieces + 1);
    const char* theirs = carries || !in_reach ? nullptr : node_.peers->map(from.worker, source, 0, dst.size_bytes());
    uint64_t pieces = 0;
    for (int64_t begin = 0; begin < dst.count; begin += most) {
      ++pieces;
      const int64_t n = std::min(most, dst.count - begin);
      if (carries) {
        const Buffer piece{mine.at(begin), n, mine.dtype};
        rail_->broadcast(piece, piece, rail_root, {});
        if (in_reach) hand_over.done();
      } else if (in_reach) {
        hand_over.await(from, pieces);
        copy(dst.at(begin), theirs + begin * dst.dtype.size_bytes(), n * dst.dtype.size_bytes());
      }
    }
    if (!in_reach) {
      StagedMoves staged{my_place_, node_, local, hand_over};
      return staged.broadcast(mine, dst, carrier);
    }
    if (is_root && src.data != dst.data) copy(dst.at(0), src.at(0), src.size_bytes());
    hand_over.done();
    for (const Arrival& a : local) hand_over.await(a, &a == &from ? pieces + 1 : 1);
  }

  void reduce_scatter(Buffer src, Buffer dst, ReduceOp op, const std::vector<Arrival>& members) override {
    flat().reduce_scatter(src, dst, op, members);
  }
  void allgather(Buffer src, Buffer dst, const std::vector<Arrival>& members) override { flat().allgather(src, dst, members); }
  void scatter(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
               const std::vector<Arrival>& members) override {
    flat().scatter(src, dst, root, counts, members);
  }
  void gather(Buffer src, Buffer dst, int root, const std::vector<int64_t>& counts,
              const std::vector<Arrival>& members) override {
    flat().gather(src, dst, root, counts, members);
  }
  void all_to_all(Buffer src, Buffer dst, const std::vector<Arrival>& members) override { flat().all_to_all(src, dst, members); }
  void all_to_all_v(Buffer src, Buffer dst, const std::vector<int64_t>& counts, const std::vector<Arrival>& members) override {
    flat().all_to_all_v(src, dst, counts, members);
  }
  void send(Buffer src, const std::vector<Arrival>& pair) override { flat().send(src, pair); }
  void recv(Buffer dst, const std::vector<Arrival>& pair) override { flat().recv(dst, pair); }

 private:
  std::vector<Arrival> on_node(const std::vector<Arrival>& members) const {
    std::vector<Arrival> local;
    local.reserve(local_ranks_.size());
    for (int r : local_ranks_) local.push_back(members[static_cast<size_t>(r)]);
    return local;
  }
  HostCommunicator& flat() {  // all members come here together
    if (!flat_) flat_ = make_flat_();
    return *flat_;
  }

  const NodePlane& node_;
  int worker_;
  std::vector<int> local_ranks_;
  std::vector<int> place_, node_index_;  // by rank: which of its node's members, and which of the nodes
  int my_place_ = 0;
  std::unique_ptr<HostCommunicator> rail_, flat_;
  std::function<std::unique_ptr<HostCommunicator>()> make_flat_;
};

}  // namespace

bool has_two_levels(const DataPlane& plane, const std::vector<int>& members) {
  if (!plane.node || !plane.node_of || !plane.mpi_parent) return false;
  const auto nodes = ranks_by_node(plane, members);
  const size_t on_first = nodes.begin()->second.size();
  return nodes.size() > 1 && on_first > 1 &&
         std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) { return node.second.size() == on_first; });
}

std::unique_ptr<HostCommunicator> make_two_level_communicator(const DataPlane& plane, const std::vector<int>& members,
                                                              CommKey key) {
  return std::make_unique<TwoLevelCommunicator>(plane, members, key);
}

}  // namespace tutti::detail
