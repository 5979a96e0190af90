#include "distributed/party.h"

#include <algorithm>
#include <map>

#include "distributed/block_copy.h"

namespace tutti::distributed {

int64_t round_bytes = 32 << 20;

namespace {

/// Of each worker that sends or receives, the lowest one of its party.
std::map<int64_t, int64_t> lowest_of(const std::vector<Move>& moves) {
  std::map<int64_t, int64_t> towards;  // one that is lower, or itself
  const auto lowest = [&](int64_t worker) {
    auto at = towards.try_emplace(worker, worker).first;
    while (at->second != at->first) {
      at->second = towards[at->second];
      at = towards.find(at->second);
    }
    return at->first;
  };
  for (const Move& move : moves) {
    if (move.from == move.to) continue;
    const auto [low, high] = std::minmax({lowest(move.from), lowest(move.to)});
    towards[high] = low;
  }
  std::map<int64_t, int64_t> all;
  for (const auto& [worker, lower] : towards) all[worker] = lowest(worker);
  return all;
}

/// `moves`: those that come to members, or go from one.
void choose_way(Party& party, const Transition& step, const std::vector<const Move*>& moves) {
  if (step.addends > 1 || !step.neutral.empty()) return;
  const auto is_whole = [&](const Move* move) { return move->block == step.from.local(move->from); };
  if (!std::ranges::all_of(moves, is_whole)) return;
  const Move& first = *moves.front();
  const auto is_of_first = [&](const Move* move) { return move->from == first.from && move->block == step.to.local(move->to); };
  if (std::ranges::all_of(moves, is_of_first)) {
    party.way = Party::Way::kBroadcast;
    party.root = static_cast<int>(first.from);
    return;
  }
  if (moves.size() != party.members.size() * party.members.size()) return;  // each has one part, and gets it once
  party.way = Party::Way::kGather;
  const auto is_like_first = [&](int member) { return step.from.local(member).shape == step.from.local(party.members[0]).shape; };
  party.is_even = std::ranges::all_of(party.members, is_like_first);
  party.is_direct = std::ranges::all_of(party.members, [&](int member) {
    const Block part = step.from.local(member);
    const Span span = span_of(part, step.to.local(member));
    return span.end - span.begin == element_count(part);
  });
}

}  // namespace

std::vector<Party> parties(const Transition& step) {
  const auto lowest = lowest_of(step.moves);
  std::map<int64_t, Party> by_lowest;
  for (const auto& [worker, low] : lowest) by_lowest[low].members.push_back(static_cast<int>(worker));
  std::map<int64_t, std::vector<const Move*>> moves;
  for (const Move& move : step.moves)
    if (const auto at = lowest.find(move.to); at != lowest.end()) moves[at->second].push_back(&move);
  std::vector<Party> all;
  for (auto& [low, party] : by_lowest) {
    choose_way(party, step, moves[low]);
    all.push_back(std::move(party));
  }
  return all;
}

int64_t rounds_of(const Transition& step) { return std::max<int64_t>(1, (step.traffic().most - 1) / round_bytes + 1); }

std::optional<Block> slice_of(const Block& block, int64_t round, int64_t rounds) {
  if (rounds == 1) return block;
  const auto longest = std::ranges::max_element(block.shape);
  if (longest == block.shape.end() || *longest <= 1) return round == 0 ? std::optional(block) : std::nullopt;
  const auto axis = static_cast<size_t>(longest - block.shape.begin());
  const int64_t extent = *longest;
  Block slice = block;
  if (extent < rounds) {  // some rounds for each index
    const int64_t each = rounds / extent;
    if (round >= each * extent) return std::nullopt;
    slice.offset[axis] += round / each;
    slice.shape[axis] = 1;
    return slice_of(slice, round % each, each);
  }
  const int64_t least = extent / rounds, more = extent % rounds;  // the first slices have one more
  slice.offset[axis] += least * round + std::min(more, round);
  slice.shape[axis] = least + (round < more ? 1 : 0);
  return slice;
}

}  // namespace tutti::distributed
