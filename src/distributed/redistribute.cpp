#include "distributed/redistribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "collective/reduce.h"
#include "distributed/block_copy.h"
#include "distributed/element.h"
#include "distributed/join.h"
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
      : share_(share), part_(part), to_(share.members.size()), from_(share.members.size()) {}

  Tensor run() {
    Tensor result;
    if (share_.to.device_mesh().coordinate(me_)) result = Tensor::empty(share_.to.local(me_).shape, dtype_);
    if (share_.is_member && share_.root >= 0) return broadcast(result);
    if (share_.is_member) exchange();
    if (result && share_.is_neutral)
      fill_with(bytes_of(result), result.element_count(), neutral_element(is_product() ? "prod" : "sum", dtype_));
    else if (result) put_together(result);
    return result;
  }

 private:
  size_t rank_of(int64_t worker) const {
    return static_cast<size_t>(std::ranges::lower_bound(share_.members, worker) - share_.members.begin());
  }
  bool is_product() const {
    return std::ranges::any_of(share_.to.placement().dim_specs(), [](const PlacementSpec& spec) { return spec.op() == "prod"; });
  }
  HeldBlock own() const { return {bytes_of(part_), share_.from.local(me_)}; }

  /// No copy is packed for each receiver.
  Tensor broadcast(const Tensor& result) {
    try {
      comm_of(share_.members).broadcast(part_, result ? result : part_, static_cast<int>(rank_of(share_.root)));
    } catch (...) {
      if (part_) part_.clear_poison();  // it was dst, but is as it was
      throw;
    }
    return result;
  }

  void exchange() {
    std::vector<const Move*> sends;
    for (const Move& move : share_.moves) {
      if (move.from == move.to) continue;
      if (move.from == me_) sends.push_back(&move), to_[rank_of(move.to)] += element_count(move.block);
      if (move.to == me_) from_[rank_of(move.from)] += element_count(move.block);
    }
    const Tensor packed = Tensor::empty({std::accumulate(to_.begin(), to_.end(), int64_t{0})}, dtype_);
    received_ = Tensor::empty({std::accumulate(from_.begin(), from_.end(), int64_t{0})}, dtype_);
    std::ranges::stable_sort(sends, {}, [&](const Move* move) { return rank_of(move->to); });
    std::byte* at = bytes_of(packed);
    for (const Move* move : sends) {
      copy_block({at, move->block}, own(), move->block, item_);
      at += static_cast<size_t>(element_count(move->block)) * item_;
    }
    comm_of(share_.members).all_to_all(packed, received_, to_, from_);
  }

  /// Blocks of each sender come in the order of the moves.
  void put_together(const Tensor& result) {
    std::vector<std::byte*> next(share_.members.size());
    std::byte* at = received_ ? bytes_of(received_) : nullptr;
    for (size_t rank = 0; rank < share_.members.size(); at += static_cast<size_t>(from_[rank++]) * item_) next[rank] = at;
    const HeldBlock whole{bytes_of(result), share_.to.local(me_)};
    std::vector<HeldBlock> addends;
    for (const Move& move : share_.moves) {
      if (move.to != me_) continue;
      if (move.from == me_) addends.push_back(own());
      else {
        std::byte*& block = next[rank_of(move.from)];
        addends.push_back({block, move.block});
        block += static_cast<size_t>(element_count(move.block)) * item_;
      }
      if (static_cast<int64_t>(addends.size()) < share_.addends) continue;
      if (share_.addends == 1) copy_block(whole, addends.front(), move.block, item_);
      else reduce(whole, addends, move.block);
      addends.clear();
    }
  }

  void reduce(const HeldBlock& whole, const std::vector<HeldBlock>& addends, const Block& block) {
    const int64_t count = element_count(block);
    const Tensor reduced = Tensor::empty({count}, dtype_);
    std::vector<Tensor> copies;
    std::vector<const char*> sources;
    for (const HeldBlock& addend : addends) {
      const std::byte* from = addend.data;
      if (addend.held != block) {  // our own, which is larger
        copies.push_back(Tensor::empty({count}, dtype_));
        copy_block({bytes_of(copies.back()), block}, addend, block, item_);
        from = bytes_of(copies.back());
      }
      sources.push_back(reinterpret_cast<const char*>(from));
    }
    char* const to[] = {reinterpret_cast<char*>(bytes_of(reduced))};
    for (const PlacementSpec& spec : share_.from.placement().dim_specs())
      if (spec.kind() == PlacementSpecKind::kPartial) {
        detail::reduce(parse_reduce_op(spec.op()), dtype_, sources, to, count);
        break;
      }
    copy_block(whole, {bytes_of(reduced), block}, block, item_);
  }

  const Share& share_;
  const Tensor& part_;
  const int64_t me_ = worker::id();
  const DType dtype_ = share_.from.tensor_sinfo().dtype;
  const size_t item_ = static_cast<size_t>(dtype_.size_bytes());
  std::vector<int64_t> to_, from_;  // elements, by rank
  Tensor received_;
};

/// Row-major, in host memory.
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

}  // namespace

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
