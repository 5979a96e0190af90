#include "distributed/block_copy.h"

#include <cstring>
#include <vector>

namespace tutti::distributed {
namespace {

/// An axis, or several that lie one after another in both memories.
struct Loop {
  int64_t count;
  int64_t to_stride, from_stride;  // elements
};

/// Pieces of one size that is known at compile time: a load and a store each.
template <size_t Bytes>
void copy_pieces(std::byte* to, const std::byte* from, const Loop& loop, int64_t item) {
  const int64_t to_step = loop.to_stride * item, from_step = loop.from_stride * item;
  for (int64_t i = 0; i < loop.count; ++i, to += to_step, from += from_step) std::memcpy(to, from, Bytes);
}

void copy_innermost(std::byte* to, const std::byte* from, const Loop& loop, size_t run_bytes, int64_t item) {
  switch (run_bytes) {
    case 1: return copy_pieces<1>(to, from, loop, item);
    case 2: return copy_pieces<2>(to, from, loop, item);
    case 4: return copy_pieces<4>(to, from, loop, item);
    case 8: return copy_pieces<8>(to, from, loop, item);
    case 16: return copy_pieces<16>(to, from, loop, item);
    default:
      for (int64_t i = 0; i < loop.count; ++i)
        std::memcpy(to + i * loop.to_stride * item, from + i * loop.from_stride * item, run_bytes);
  }
}

void copy_loops(std::byte* to, const std::byte* from, const Loop* loop, const Loop* end, size_t run_bytes, int64_t item) {
  if (loop == end) {
    std::memcpy(to, from, run_bytes);
    return;
  }
  if (loop + 1 == end) return copy_innermost(to, from, *loop, run_bytes, item);
  for (int64_t i = 0; i < loop->count; ++i)
    copy_loops(to + i * loop->to_stride * item, from + i * loop->from_stride * item, loop + 1, end, run_bytes, item);
}

/// Where the block begins, in elements from the memory's begin.
int64_t offset_of(const Block& block, const Block& held) {
  int64_t offset = 0;
  for (size_t axis = 0; axis < held.shape.size(); ++axis)
    offset = offset * held.shape[axis] + block.offset[axis] - held.offset[axis];
  return offset;
}

}  // namespace

Span span_of(const Block& block, const Block& held) {
  Block last = block;
  for (size_t axis = 0; axis < block.shape.size(); ++axis) last.offset[axis] += block.shape[axis] - 1;
  return {offset_of(block, held), offset_of(last, held) + 1};
}

std::byte* piece_of(const HeldBlock& whole, const Block& block, size_t item_bytes) {
  int64_t inside = 1;    // elements of the block in one step of the axis
  bool is_whole = true;  // the block has all of the axes further in
  for (size_t axis = block.shape.size(); axis-- > 0;) {
    if (!is_whole && block.shape[axis] > 1) return nullptr;
    is_whole = is_whole && block.shape[axis] == whole.held.shape[axis];
    inside *= block.shape[axis];
  }
  return inside == 0 ? nullptr : whole.data + offset_of(block, whole.held) * static_cast<int64_t>(item_bytes);
}

void copy_block(const HeldBlock& to, const HeldBlock& from, const Block& block, size_t item_bytes) {
  if (tutti::element_count(block.shape) == 0) return;
  const auto item = static_cast<int64_t>(item_bytes);
  std::byte* target = to.data + offset_of(block, to.held) * item;
  const std::byte* source = from.data + offset_of(block, from.held) * item;
  std::vector<Loop> loops;  // the last is the innermost
  int64_t run = 1, to_stride = 1, from_stride = 1;
  for (size_t axis = block.shape.size(); axis-- > 0;) {
    if (run == to_stride && run == from_stride) run *= block.shape[axis];  // all inside of it is one piece of both memories
    else if (block.shape[axis] > 1) loops.insert(loops.begin(), Loop{block.shape[axis], to_stride, from_stride});
    to_stride *= to.held.shape[axis];
    from_stride *= from.held.shape[axis];
  }
  copy_loops(target, source, loops.data(), loops.data() + loops.size(), static_cast<size_t>(run * item), item);
}

}  // namespace tutti::distributed
