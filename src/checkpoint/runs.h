#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tutti/distributed.h"

namespace tutti::distributed {

/// Bytes that lie in one piece in a worker's part, row-major, and in the whole tensor.
struct Run {
  int64_t in_part, in_tensor, bytes;
};

/// The runs of a block, in their order in both.
class Runs {
 public:
  Runs(const Block& block, const Shape& whole, int64_t item_bytes) : block_(block), strides_(whole.size()) {
    int64_t stride = item_bytes;
    for (size_t axis = whole.size(); axis-- > 0; stride *= whole[axis]) strides_[axis] = stride;
    outer_ = whole.size();
    length_ = item_bytes;
    while (outer_ > 0) {  // up to the last axis that is cut, that one included
      --outer_;
      length_ *= block.shape[outer_];
      if (block.shape[outer_] != whole[outer_]) break;
    }
    part_bytes_ = item_bytes * element_count(block.shape);
    for (size_t axis = 0; axis < whole.size(); ++axis) first_ += block.offset[axis] * strides_[axis];
  }
  int64_t part_bytes() const { return part_bytes_; }
  int64_t length() const { return length_; }       ///< of a run
  int64_t span() const { return end() - first_; }  ///< from the begin of the first to the end of the last, in the tensor
  /// Of the last run, in the tensor.
  int64_t end() const {
    int64_t end = length_ + first_;
    for (size_t axis = 0; axis < outer_; ++axis) end += (block_.shape[axis] - 1) * strides_[axis];
    return end;
  }
  /// Calls f(Run) for those of the part's bytes [begin, end).
  template <class F>
  void each(int64_t begin, int64_t end, F f) const {
    while (begin < end) {
      const int64_t run = begin / length_, inside = begin % length_;
      const int64_t bytes = std::min(length_ - inside, end - begin);
      int64_t place = first_ + inside;
      for (size_t axis = outer_, rest = static_cast<size_t>(run); axis-- > 0; rest /= static_cast<size_t>(block_.shape[axis]))
        place += static_cast<int64_t>(rest % static_cast<size_t>(block_.shape[axis])) * strides_[axis];
      f(Run{begin, place, bytes});
      begin += bytes;
    }
  }

 private:
  Block block_;
  Shape strides_;
  size_t outer_;  ///< axes before those that a run covers
  int64_t length_, part_bytes_, first_ = 0;
};

/// Workers that hold the same block share it: which of them this worker is.
struct Holder {
  int64_t index = 0, count = 0;
};
inline Holder holder_of(const DTensorStructInfo& info, int64_t worker) {
  const Block own = info.local(worker);
  Holder holder;
  for (const int64_t each : info.device_mesh().device_ids()) {
    if (each != worker && info.local(each) != own) continue;
    if (each == worker) holder.index = holder.count;
    ++holder.count;
  }
  return holder;
}

}  // namespace tutti::distributed
