#include "distributed/memory.h"

#include <algorithm>
#include <map>

namespace tutti::distributed {

int64_t round_bytes = 32 << 20;

namespace {

int64_t item_bytes(const Transition& step) { return step.from.tensor_sinfo().dtype.size_bytes(); }

int64_t part_bytes(const DTensorStructInfo& info, int64_t worker) {
  if (!info.device_mesh().coordinate(worker)) return 0;
  return element_count(info.local(worker)) * info.tensor_sinfo().dtype.size_bytes();
}

/// Of the largest slice, the first.
int64_t slice_bytes(const Move& move, int64_t rounds, int64_t item) {
  return element_count(*slice_of(move.block, 0, rounds)) * item;
}

}  // namespace

int64_t rounds_of(const Transition& step) { return std::max<int64_t>(1, (step.traffic().most - 1) / round_bytes + 1); }

std::optional<Block> slice_of(const Block& block, int64_t round, int64_t rounds) {
  if (rounds == 1) return block;
  Block slice = block;
  const auto longest = std::ranges::max_element(slice.shape);
  if (longest == slice.shape.end() || *longest == 0) return round == 0 ? std::optional(slice) : std::nullopt;
  const int64_t least = *longest / rounds, more = *longest % rounds;  // the first slices have one more
  slice.offset[static_cast<size_t>(longest - slice.shape.begin())] += least * round + std::min(more, round);
  *longest = least + (round < more ? 1 : 0);
  return *longest == 0 ? std::nullopt : std::optional(slice);
}

Peak peak(const std::vector<Transition>& steps) {
  Peak peak{0, 0};
  for (const Transition& step : steps) {
    const int64_t rounds = rounds_of(step), item = item_bytes(step);
    struct Needed {
      int64_t packed = 0, copied = 0;
    };
    std::map<int64_t, Needed> workers;
    for (const DTensorStructInfo* info : {&step.from, &step.to})
      for (const int64_t worker : info->device_mesh().device_ids()) workers[worker];
    for (const Move& move : step.moves) {
      Needed& receiver = workers[move.to];
      if (step.addends > 1)
        receiver.copied =
            std::max(receiver.copied, std::min(element_count(move.block) * item, kReducedBytes) * (step.addends + 1));
      if (move.from == move.to) continue;
      for (Needed* needed : {&workers[move.from], &receiver})
        needed->packed = sum_of(needed->packed, slice_bytes(move, rounds, item));
    }
    for (const auto& [worker, needed] : workers) {
      const int64_t before = &step == &steps.front() ? 0 : part_bytes(step.from, worker);
      const int64_t mapped = sum_of(sum_of(before, part_bytes(step.to, worker)), needed.copied);
      peak.mapped = std::max(peak.mapped, mapped);
      peak.packed = std::max(peak.packed, sum_of(mapped, root_of(step) >= 0 ? 0 : needed.packed));
    }
  }
  return peak;
}

}  // namespace tutti::distributed
