#include "agreement/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tutti::detail {

std::vector<int32_t> missing_in(const MemberState& s, std::span<const MemberState> states) {
  std::vector<int32_t> missing;
  for (int32_t member : s.members) {
    const auto it = std::find_if(states.begin(), states.end(), [&](const MemberState& other) { return other.worker == member; });
    const bool is_in_it =
        it != states.end() && it->id == s.id && (it->kind == MemberState::Kind::kWaits || it->kind == MemberState::Kind::kMoves);
    const auto has_started = [&](const CollectiveId& id) { return s.at_device && id.comm == s.id.comm && id >= s.id; };
    const bool is_there = is_in_it || (it != states.end() && (std::ranges::find(it->joined, s.id) != it->joined.end() ||
                                                              std::ranges::any_of(it->started, has_started)));
    if (!is_there) missing.push_back(member);
  }
  return missing;
}

bool Deadlock::has(int worker) const { return std::find(workers.begin(), workers.end(), worker) != workers.end(); }

std::optional<Deadlock> find_deadlock(std::span<const MemberState> states, const std::function<bool(const MemberState&)>& waits) {
  std::map<int32_t, const MemberState*> by_worker;
  for (const MemberState& s : states) by_worker[s.worker] = &s;
  std::map<int32_t, std::vector<int32_t>> blocked;  // and whom each waits for
  for (const MemberState& s : states) {
    if (s.kind != MemberState::Kind::kWaits || !waits(s)) continue;
    auto missing = missing_in(s, states);
    // somebody has left it already, itself perhaps
    const bool is_about_to_fail = std::any_of(s.members.begin(), s.members.end(), [&](int32_t member) {
      const auto it = by_worker.find(member);
      return it != by_worker.end() && std::find(it->second->left.begin(), it->second->left.end(), s.id) != it->second->left.end();
    });
    if (!missing.empty() && !is_about_to_fail) blocked.emplace(s.worker, std::move(missing));
  }
  // who waits for one that is not blocked may go on
  while (std::erase_if(blocked, [&](const auto& entry) {
    return !std::all_of(entry.second.begin(), entry.second.end(), [&](int32_t member) { return blocked.contains(member); });
  })) {
  }
  if (blocked.empty()) return std::nullopt;
  Deadlock found;
  for (const auto& [worker, missing] : blocked) {
    const MemberState& s = *by_worker[worker];
    found.message += fmt::format("{}worker {} waits in {} for worker {}", found.workers.empty() ? "" : "; ", worker, s.doing,
                                 fmt::join(missing, ", "));
    found.workers.push_back(worker);
    if (std::find(found.ids.begin(), found.ids.end(), s.id) == found.ids.end()) found.ids.push_back(s.id);
  }
  found.message = fmt::format("deadlock in command {}: {}; members must call their collectives in the same order",
                              found.ids.front().seq, found.message);
  return found;
}

}  // namespace tutti::detail
