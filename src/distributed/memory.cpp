#include "distributed/memory.h"

#include <algorithm>
#include <map>

#include "distributed/party.h"

namespace tutti::distributed {
namespace {

int64_t part_bytes(const DTensorStructInfo& info, int64_t worker) {
  if (!info.device_mesh().coordinate(worker)) return 0;
  return element_count(info.local(worker)) * info.tensor_sinfo().dtype.size_bytes();
}

/// Of what is packed or received at a time, by worker.
std::map<int64_t, int64_t> packed_bytes(const Transition& step) {
  const int64_t rounds = rounds_of(step), item = step.from.tensor_sinfo().dtype.size_bytes();
  const auto slice = [&](const Block& block) { return element_count(*slice_of(block, 0, rounds)) * item; };  // the largest
  std::map<int64_t, int64_t> bytes;
  std::map<int64_t, Party::Way> ways;
  for (const Party& party : parties(step))
    for (const int member : party.members) ways[member] = party.is_direct ? Party::Way::kBroadcast : party.way;
  for (const Move& move : step.moves) {
    const Party::Way way = ways[move.to];  // of one that only keeps: no matter
    const bool is_kept = move.from == move.to;
    if (way == Party::Way::kBroadcast || (way == Party::Way::kBlocks && is_kept)) continue;
    bytes[move.to] =
        saturated_sum(bytes[move.to], is_kept ? 2 * slice(move.block) : slice(move.block));  // packed, and received again
    if (way == Party::Way::kBlocks) bytes[move.from] = saturated_sum(bytes[move.from], slice(move.block));
  }
  return bytes;
}

/// Of a worker that reduces.
std::map<int64_t, int64_t> copied_bytes(const Transition& step) {
  std::map<int64_t, int64_t> bytes;
  if (step.addends == 1) return bytes;
  for (const Move& move : step.moves) {
    const int64_t block = element_count(move.block) * step.from.tensor_sinfo().dtype.size_bytes();
    bytes[move.to] = std::max(bytes[move.to], std::min(block, kReducedBytes) * (step.addends + 1));
  }
  return bytes;
}

}  // namespace

Peak peak(const std::vector<Transition>& steps) {
  Peak peak{0, 0};
  std::map<int64_t, int64_t> packed;  // of all steps: what one has freed may be of no use for the next
  for (const Transition& step : steps) {
    for (const auto& [worker, bytes] : packed_bytes(step)) packed[worker] = saturated_sum(packed[worker], bytes);
    auto copied = copied_bytes(step);
    for (const DTensorStructInfo* info : {&step.from, &step.to})
      for (const int64_t worker : info->device_mesh().device_ids()) {
        const int64_t between = &step == &steps.front() ? 0 : part_bytes(step.from, worker);
        const int64_t mapped = saturated_sum(saturated_sum(between, part_bytes(step.to, worker)), copied[worker]);
        peak.mapped = std::max(peak.mapped, mapped);
        peak.packed = std::max(peak.packed, saturated_sum(mapped, packed[worker]));
      }
  }
  return peak;
}

}  // namespace tutti::distributed
