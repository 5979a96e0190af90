#include "distributed/redistribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "collective/reduce.h"
#include "control/worker/comm_handle.h"
#include "distributed/block_copy.h"
#include "distributed/element.h"
#include "distributed/join.h"
#include "distributed/memory.h"
#include "distributed/share.h"
#include "tutti/device.h"
#include "tutti/error.h"
#include "tutti/worker.h"

namespace tutti::distributed {
namespace {

std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data()); }

Comm comm_of(const std::vector<int>& members) {
  return static_cast<int>(members.size()) == worker::count() ? worker::world() : worker::comm(members);
}

/// What this worker sends and receives in one exchange, one block after another.
class Exchange {
 public:
  Exchange(const Share& share, const Tensor& part)
      : share_(share), members_(share.party.members), part_(part), to_(members_.size()), from_(members_.size()) {}

  Tensor run() {
    Tensor result;
    if (share_.to.device_mesh().coordinate(me_)) result = Tensor::empty(share_.to.local(me_).shape, dtype_);
    if (result && share_.is_neutral)
      fill_with(bytes_of(result), result.element_count(), neutral_element(is_product() ? "prod" : "sum", dtype_));
    exchange(share_.is_neutral ? Tensor() : result);
    return result;
  }

 private:
  size_t rank_of(int64_t worker) const {
    return static_cast<size_t>(std::ranges::lower_bound(members_, worker) - members_.begin());
  }
  bool is_product() const {
    return std::ranges::any_of(share_.to.placement().dim_specs(), [](const PlacementSpec& spec) { return spec.op() == "prod"; });
  }
  HeldBlock own() const { return {bytes_of(part_), share_.from.local(me_)}; }

  void exchange(const Tensor& result) {
    using Way = Party::Way;
    if (members_.empty()) return keep(result);
    if (share_.party.way == Way::kBroadcast) return broadcast(result);
    if (is_large() && read_peers(result)) return;
    if (share_.party.way == Way::kGather) return share_.party.is_direct ? gather(result) : gather_by_slices(result);
    for (int64_t round = 0; round < share_.rounds; ++round) send_blocks(result, round);
  }

  /// What nobody sends.
  void keep(const Tensor& result) {
    put_together(result, 0, 1, [&](const Move&, const Block&) { return own(); });
  }

  /// No copy is packed for each receiver.
  void broadcast(const Tensor& result) {
    const bool receives = result && result.element_count() > 0;  // or the root keeps nothing
    try {
      comm_of(members_).broadcast(part_, receives ? result : part_, static_cast<int>(rank_of(share_.party.root)));
    } catch (...) {
      if (part_) part_.clear_poison();  // it was dst, but is as it was
      throw;
    }
  }

  /// Parts that are one piece in the result go right there.
  void gather(const Tensor& result) {
    const Comm comm = comm_of(members_);
    std::vector<Span> pieces;
    for (const int member : members_) pieces.push_back(span_of(share_.from.local(member), share_.to.local(me_)));
    if (share_.party.is_even && std::ranges::is_sorted(pieces, {}, &Span::begin)) return comm.allgather(part_, result);
    for (size_t rank = 0; rank < pieces.size(); ++rank) {
      const auto begin = static_cast<uint64_t>(pieces[rank].begin) * item_;
      const Tensor piece = result.view({pieces[rank].end - pieces[rank].begin}, {1}, result.byte_offset() + begin);
      comm.broadcast(part_, piece, static_cast<int>(rank));
    }
  }

  /// Others by way of a buffer.
  void gather_by_slices(const Tensor& result) {
    const Comm comm = comm_of(members_);
    const HeldBlock whole{bytes_of(result), share_.to.local(me_)};
    for (int64_t round = 0; round < share_.rounds; ++round) {
      std::vector<std::optional<Block>> slices;
      for (const int member : members_) slices.push_back(slice_of(share_.from.local(member), round, share_.rounds));
      Tensor mine;
      if (const auto& slice = slices[rank_of(me_)]) {
        mine = Tensor::empty({element_count(*slice)}, dtype_);
        copy_block({bytes_of(mine), *slice}, own(), *slice, item_);
      }
      if (share_.party.is_even) {
        if (!mine) continue;  // nor have the others anything
        const Tensor all = Tensor::empty({mine.element_count() * static_cast<int64_t>(members_.size())}, dtype_);
        comm.allgather(mine, all);
        std::byte* at = bytes_of(all);
        for (const auto& slice : slices) {
          copy_block(whole, {at, *slice}, *slice, item_);
          at += mine.size_bytes();
        }
        continue;
      }
      for (size_t rank = 0; rank < slices.size(); ++rank) {
        if (!slices[rank]) continue;
        const bool is_mine = members_[rank] == me_;
        const Tensor slice = is_mine ? mine : Tensor::empty({element_count(*slices[rank])}, dtype_);
        comm.broadcast(is_mine ? mine : Tensor(), slice, static_cast<int>(rank));
        copy_block(whole, {bytes_of(slice), *slices[rank]}, *slices[rank], item_);
      }
    }
  }

  /// Small parts do not lie where others can map them.
  bool is_large() const {
    constexpr int64_t kLeast = 64 << 10;
    return size_bytes(share_.from.tensor_sinfo().shape, dtype_) / share_.from.device_mesh().size() >= kLeast;
  }

  /// Blocks come straight from the others' parts. False, on all members: not all of them can be reached.
  bool read_peers(const Tensor& result) {
    const Tensor source = part_ && part_.element_count() > 0 ? part_ : Tensor();
    return detail::CommHandle::of(comm_of(members_)).exchange(source, [&](const detail::SourceOf& source_of) {
      put_together(result, 0, 1, [&](const Move& move, const Block& block_of) {
        HeldBlock part{nullptr, share_.from.local(move.from)};
        const Span span = span_of(block_of, part.held);  // what is not read is not mapped
        const int64_t begin = span.begin * static_cast<int64_t>(item_), bytes = span.end * static_cast<int64_t>(item_) - begin;
        const char* block = source_of(static_cast<int>(rank_of(move.from)), begin, bytes);
        part.data = reinterpret_cast<std::byte*>(const_cast<char*>(block)) - begin;
        return part;
      });
    });
  }

  void send_blocks(const Tensor& result, int64_t round) {
    std::vector<std::pair<size_t, Block>> sends;
    std::ranges::fill(to_, 0), std::ranges::fill(from_, 0);
    for (const Move& move : share_.moves) {
      if (move.from == move.to) continue;
      const auto block = slice_of(move.block, round, share_.rounds);
      if (!block) continue;
      if (move.from == me_) sends.emplace_back(rank_of(move.to), *block), to_[rank_of(move.to)] += element_count(*block);
      if (move.to == me_) from_[rank_of(move.from)] += element_count(*block);
    }
    const Tensor packed = Tensor::empty({std::accumulate(to_.begin(), to_.end(), int64_t{0})}, dtype_);
    const Tensor received = Tensor::empty({std::accumulate(from_.begin(), from_.end(), int64_t{0})}, dtype_);
    std::ranges::stable_sort(sends, {}, &std::pair<size_t, Block>::first);
    std::byte* at = bytes_of(packed);
    for (const auto& [rank, block] : sends) {
      copy_block({at, block}, own(), block, item_);
      at += static_cast<size_t>(element_count(block)) * item_;
    }
    comm_of(members_).all_to_all(packed, received, to_, from_);
    std::vector<std::byte*> next(members_.size());  // of each sender, blocks in the order of the moves
    at = bytes_of(received);
    for (size_t rank = 0; rank < next.size(); at += static_cast<size_t>(from_[rank++]) * item_) next[rank] = at;
    put_together(result, round, share_.rounds, [&](const Move& move, const Block& block) {
      std::byte*& begin = next[rank_of(move.from)];
      return HeldBlock{std::exchange(begin, begin + static_cast<size_t>(element_count(block)) * item_), block};
    });
  }

  /// What comes in one round. `held_by(move, block)`: the memory of the sender's block, or of more around it.
  template <class HeldBy>
  void put_together(const Tensor& result, int64_t round, int64_t rounds, HeldBy held_by) {
    if (!result) return;
    const HeldBlock whole{bytes_of(result), share_.to.local(me_)};
    std::vector<HeldBlock> addends;
    for (const Move& move : share_.moves) {
      if (move.to != me_) continue;
      const auto block = slice_of(move.block, round, rounds);
      if (!block) continue;
      addends.push_back(move.from == me_ ? own() : held_by(move, *block));
      if (static_cast<int64_t>(addends.size()) < share_.addends) continue;
      if (share_.addends == 1) copy_block(whole, addends.front(), *block, item_);
      else reduce(whole, addends, *block);
      addends.clear();
    }
  }

  /// Blocks that are one piece in all memories are reduced where they lie; others by way of copies, a part of the block at a
  /// time.
  void reduce(const HeldBlock& whole, const std::vector<HeldBlock>& addends, const Block& block) {
    const int64_t count = element_count(block);
    if (count == 0) return;
    std::byte* to = piece_of(whole, block, item_);
    std::vector<const char*> sources;
    for (const HeldBlock& addend : addends)
      if (const std::byte* piece = piece_of(addend, block, item_)) sources.push_back(reinterpret_cast<const char*>(piece));
    if (const bool is_one_piece = to && sources.size() == addends.size(); is_one_piece) return reduce_pieces(sources, to, count);
    const auto longest = std::ranges::find_if(block.shape, [](int64_t extent) { return extent > 1; });
    if (count * static_cast<int64_t>(item_) > kReducedBytes && longest != block.shape.end()) {
      const auto axis = static_cast<size_t>(longest - block.shape.begin());
      Block first = block, second = block;
      first.shape[axis] = block.shape[axis] / 2;
      second.shape[axis] -= first.shape[axis];
      second.offset[axis] += first.shape[axis];
      reduce(whole, addends, first);
      return reduce(whole, addends, second);
    }
    const Tensor copies = Tensor::empty({static_cast<int64_t>(addends.size()) + 1, count}, dtype_);
    std::byte* copy = bytes_of(copies);
    sources.clear();
    for (const HeldBlock& addend : addends) {
      copy_block({copy, block}, addend, block, item_);
      sources.push_back(reinterpret_cast<const char*>(copy));
      copy += static_cast<size_t>(count) * item_;
    }
    reduce_pieces(sources, copy, count);
    copy_block(whole, {copy, block}, block, item_);
  }

  void reduce_pieces(const std::vector<const char*>& sources, std::byte* to, int64_t count) const {
    const auto& specs = share_.from.placement().dim_specs();
    const auto partial =
        std::ranges::find_if(specs, [](const PlacementSpec& spec) { return spec.kind() == PlacementSpecKind::kPartial; });
    char* const targets[] = {reinterpret_cast<char*>(to)};
    detail::reduce(parse_reduce_op(partial->op()), dtype_, sources, targets, count);
  }

  const Share& share_;
  const std::vector<int>& members_;
  const Tensor& part_;
  const int64_t me_ = worker::id();
  const DType dtype_ = share_.from.tensor_sinfo().dtype;
  const size_t item_ = static_cast<size_t>(dtype_.size_bytes());
  std::vector<int64_t> to_, from_;  // elements, by rank
};

}  // namespace

Tensor on_host(const Tensor& part) {
  if (part.device().type == dl::kCPU) return part.contiguous();
  if (part.is_contiguous()) {
    Tensor copy = Tensor::empty(part.shape(), part.dtype());
    copy.copy_from(part);
    return copy;
  }
  int64_t span = 1;  // a view with gaps: all of it, and then what it shows
  for (size_t axis = 0; axis < part.shape().size(); ++axis) span += (part.shape()[axis] - 1) * part.strides()[axis];
  const Tensor all = Tensor::empty({span}, part.dtype());
  all.copy_from(part.view({span}, {1}, part.byte_offset()));
  return all.view(part.shape(), part.strides(), 0).contiguous();
}

Tensor redistribute(const Value& part, const DTensorStructInfo& from, const DTensorStructInfo& to) {
  const int64_t me = worker::id();
  Device device = worker::device();
  Tensor now;
  if (from.device_mesh().coordinate(me)) {
    now = checked_part(part, from);
    device = now.device();
    now = on_host(now);
  }
  const auto steps = shares(me, from, to);  // kept: the cache may drop them meanwhile
  for (const Share& share : *steps) now = Exchange(share, now).run();
  if (!to.device_mesh().coordinate(me)) return {};
  if (device.type == dl::kCPU) return now;
  Tensor on_device = Tensor::empty(now.shape(), now.dtype(), device);
  on_device.copy_from(now);
  return on_device;
}

}  // namespace tutti::distributed
