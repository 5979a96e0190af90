#include "control/channel/mpi/verdicts.h"

#include <algorithm>

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kStragglersAcross = 200ms;  // as on a node
constexpr auto kPatience = 1ms;            // before missing members are watched
constexpr size_t kKept = 4096;             // departures that are remembered

}  // namespace

void Verdicts::arrived(Arrival arrival, Clock::time_point now) {
  Waiting& w = latest_[arrival.worker];
  const bool declined = std::any_of(arrival.left.begin(), arrival.left.end(), [&](auto& l) { return l.first == arrival.id; });
  if (!declined && w.arrival.id == arrival.id && !w.arrival.members.empty())
    return;  // nobody joins twice: its verdict may have fallen
  // what we noted of its failures in this command stays
  if (w.arrival.id.seq == arrival.id.seq)
    for (const auto& noted : w.arrival.left)
      if (std::find(arrival.left.begin(), arrival.left.end(), noted) == arrival.left.end()) arrival.left.push_back(noted);
  w = {.arrival = std::move(arrival), .since = now, .waits = !declined, .asked = false};
  changed_ = true;
}

void Verdicts::left(int worker, uint64_t seq, std::optional<Origin> origin) {
  if (left_.size() > kKept) left_.erase(left_.begin());  // the oldest command
  left_[{seq, worker}] = origin;
  changed_ = true;
}

std::optional<Arrival> Verdicts::arrival(int worker) {
  const auto it = latest_.find(worker);
  return it == latest_.end() ? std::nullopt : std::optional(it->second.arrival);
}

std::optional<Origin> Verdicts::failure_at(int worker, uint64_t seq) {
  const auto it = left_.find({seq, worker});
  return it == left_.end() ? std::nullopt : it->second;
}

std::vector<Verdicts::Fallen> Verdicts::fall(Clock::time_point now) {
  std::vector<Fallen> fallen;
  if (!changed_ && !mismatch_pending_) return fallen;
  changed_ = false;
  mismatch_pending_ = false;
  for (auto& [worker, w] : latest_) {
    if (!w.waits) continue;
    std::vector<Arrival> members;
    const Arrival mine = w.arrival;
    Verdict verdict = decide(mine, *this, now - w.since < kStragglersAcross, &members);
    if (verdict.kind == Verdict::Kind::kPending) {
      // a mismatch that waits for stragglers must be looked at again without news
      if (decide(mine, *this, false, nullptr).kind != Verdict::Kind::kPending) mismatch_pending_ = true;
      continue;
    }
    fallen.push_back(drop(mine.id, verdict.kind == Verdict::Kind::kAgreed, std::move(verdict.why)));
    if (mine.signature.op == CollectiveOp::kAllToAllV) continue;  // each has lists of its own, and needs no others
    for (const Arrival& member : members) fallen.back().verdict.counts.push_back(member.counts);
  }
  return fallen;
}

Verdicts::Fallen Verdicts::drop(const CollectiveId& id, bool agreed, Disagreement why) {
  Fallen f;
  f.verdict.id = id;
  f.verdict.agreed = agreed;
  f.verdict.why = std::move(why);
  for (auto& [other, o] : latest_) {
    if (!o.waits || o.arrival.id != id) continue;
    f.workers.push_back(other);
    o.waits = false;
    // whoever comes to it later must not find these waiting
    if (!agreed) o.arrival.left.emplace_back(id, f.verdict.why.origin.value_or(Origin{other, id.seq}));
  }
  return f;
}

bool Verdicts::pending(int worker, const CollectiveId& id) const {
  const auto it = latest_.find(worker);
  return it != latest_.end() && it->second.waits && it->second.arrival.id == id;
}

std::vector<Verdicts::Fallen> Verdicts::fail(const std::vector<CollectiveId>& ids, const std::string& message) {
  std::vector<Fallen> fallen;
  for (const CollectiveId& id : ids)
    if (Fallen f = drop(id, false, {.origin = {}, .message = message}); !f.workers.empty()) fallen.push_back(std::move(f));
  changed_ = true;
  return fallen;
}

bool Verdicts::anyone_waits_since(Clock::time_point time) const {
  return std::any_of(latest_.begin(), latest_.end(),
                     [&](const auto& entry) { return entry.second.waits && entry.second.since <= time; });
}

std::vector<std::pair<int, uint64_t>> Verdicts::missing(Clock::time_point now) {
  std::vector<std::pair<int, uint64_t>> members;
  for (auto& [worker, w] : latest_) {
    if (!w.waits || w.asked || now - w.since < kPatience) continue;
    w.asked = true;
    for (int32_t member : w.arrival.members) {
      const auto it = latest_.find(member);
      if (it == latest_.end() || it->second.arrival.id != w.arrival.id) members.emplace_back(member, w.arrival.id.seq);
    }
  }
  return members;
}

}  // namespace tutti::detail
