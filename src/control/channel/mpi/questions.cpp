#include "control/channel/mpi/questions.h"

#include <algorithm>
#include <utility>

namespace tutti::detail {
namespace {

constexpr size_t kAnswersKept = 4096;  // answers that are remembered

}  // namespace

bool Questions::asked(int asker, const Sequence& sequence, std::set<int> nodes, Clock::time_point now) {
  const Sequence::Id id = sequence.id();
  if (const auto known = latest_.find(id.comm); known != latest_.end() && known->second.id == id) {
    known_.push_back({{asker}, known->second});
    return false;
  }
  const auto [it, is_new] = pending_.try_emplace(id, Pending{sequence.latest.id(), {}, std::move(nodes), now});
  it->second.askers.push_back(asker);
  return is_new;
}

void Questions::answered(int node, const Answer& answer) {
  const auto it = pending_.find(answer.id);
  if (it == pending_.end()) return;
  it->second.nodes.erase(node);
  if (answer.why || it->second.nodes.empty()) close(it, answer.why);
}

void Questions::close(std::map<Sequence::Id, Pending>::iterator pending, std::optional<Disagreement> why) {
  Answer answer{pending->first, std::move(why)};
  if (latest_.size() >= kAnswersKept) latest_.clear();
  latest_[answer.id.comm] = answer;
  known_.push_back({std::move(pending->second.askers), std::move(answer)});
  pending_.erase(pending);
}

std::vector<Questions::Known> Questions::take_known() { return std::exchange(known_, {}); }

bool Questions::pending(const CollectiveId& latest) const {
  return std::ranges::any_of(pending_, [&](const auto& entry) { return entry.second.latest == latest; });
}

void Questions::fail(const std::vector<CollectiveId>& ids, const std::string& message) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const auto one = it++;
    if (std::ranges::find(ids, one->second.latest) != ids.end()) close(one, Disagreement{.origin = {}, .message = message});
  }
}

bool Questions::anyone_waits_since(Clock::time_point time) const {
  return std::ranges::any_of(pending_, [&](const auto& entry) { return entry.second.since <= time; });
}

void Questions::drop_until(uint64_t since) {
  std::erase_if(pending_, [&](const auto& entry) { return entry.first.since <= since; });
  std::erase_if(latest_, [&](const auto& entry) { return entry.second.id.since <= since; });
}

}  // namespace tutti::detail
