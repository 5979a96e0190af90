#include "agreement/announcements.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agreement/board_view.h"

namespace tutti::detail {
namespace {

uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

uint64_t chained(uint64_t hash, const ArrivalLine::Key& key) {
  for (const uint64_t word : {key.comm, key.seq, key.index_root, key.what, key.count}) hash = mixed(hash, word);
  return hash;
}

}  // namespace

void Announcements::restart(uint64_t since) {
  since_ = since;
  sequences_.clear();
  open_.clear();
  latest_ = nullptr;
}

void Announcements::add(const CollectiveId& id, const Signature& signature, const std::vector<int>& members) {
  if (members.size() < 2) return;
  if (!latest_ || latest_->last.comm != id.comm) {
    latest_ = &sequences_[id.comm];
    if (latest_->members.empty()) latest_->members = members, latest_->chain = since_;
  }
  Sequence& sequence = *latest_;
  const auto key = ArrivalLine::key_of(id, signature);
  sequence.last = id;
  ++sequence.number;
  sequence.chain = chained(sequence.chain, key);
  board_.announce(worker_, ++announced_, {key, static_cast<uint32_t>(since_), sequence.number, sequence.chain});
  if (!std::exchange(sequence.is_open, true)) open_.push_back(&sequence);
}

/// From the latest on: of one communicator the numbers fall.
std::optional<Announcement> Announcements::find(int worker, CommKey comm, uint32_t up_to, bool* is_ahead) const {
  const uint64_t all = board_.member(worker).announced.load(std::memory_order_acquire);
  for (uint64_t n = all; n > 0 && n + Board::kAnnouncements > all; --n) {
    const auto seen = board_.announcement(worker, n);
    if (!seen || seen->key.comm != comm || seen->since != static_cast<uint32_t>(since_)) continue;
    if (seen->number <= up_to) return seen;
    if (is_ahead) *is_ahead = true;
  }
  return std::nullopt;
}

std::optional<Disagreement> Announcements::look() {
  std::optional<Disagreement> why;
  std::erase_if(open_, [&](Sequence* sequence) {
    bool all_there = true;
    if (!why) why = look_at(*sequence, all_there);
    else all_there = false;
    if (why || !all_there) return false;
    sequence->is_open = false;
    return true;
  });
  return why;
}

/// Members with the same number have started the same collectives if their chains are equal. A member that is so far ahead that
/// ours is overwritten compares its own with ours later: one of the two always comes last and finds the other's.
std::optional<Disagreement> Announcements::look_at(const Sequence& sequence, bool& all_there) const {
  const CommKey comm = sequence.last.comm;
  BoardView view(board_);
  for (const int member : sequence.members) {
    if (member == worker_) continue;
    const bool has_left = view.finished(member, sequence.last.seq);  // before its announcements: none comes afterwards
    bool is_ahead = false;
    const auto theirs = find(member, comm, sequence.number, &is_ahead);
    if (!theirs && is_ahead) continue;
    const uint32_t number = theirs ? theirs->number : 0;
    const auto ours = find(worker_, comm, number);
    if (theirs && ours && ours->number == number && ours->chain != theirs->chain) return difference(sequence, member, number);
    if (number == sequence.number) continue;
    if (has_left) return absence(sequence, member, number + 1);
    all_there = false;
  }
  return std::nullopt;
}

/// A member has passed the command of our collective `number` without it.
Disagreement Announcements::absence(const Sequence& sequence, int other, uint32_t number) const {
  const auto ours = find(worker_, sequence.last.comm, number);
  const CollectiveId id = ours ? ours->id() : sequence.last;
  const CollectiveOp op = ours ? ArrivalLine::signature(ours->key).op : CollectiveOp::kAllreduce;
  return departure(op, other, BoardView(board_).failure_at(other, id.seq));
}

/// Theirs of that number is not ours: names the first difference that is still there.
Disagreement Announcements::difference(const Sequence& sequence, int other, uint32_t number) const {
  const CommKey comm = sequence.last.comm;
  std::optional<Announcement> ours, theirs;
  for (; number > 0; --number) {
    const auto a = find(worker_, comm, number), b = find(other, comm, number);
    if (!a || !b || a->number != number || b->number != number || a->chain == b->chain) break;
    ours = a, theirs = b;
  }
  if (ours && ours->id() != theirs->id()) {
    const bool is_ours = ours->id() < theirs->id();
    const Announcement& missed = is_ours ? *ours : *theirs;
    const int absent = is_ours ? other : worker_;
    return departure(ArrivalLine::signature(missed.key).op, absent, BoardView(board_).failure_at(absent, missed.key.seq));
  }
  std::vector<Arrival> arrivals;
  for (const int member : sequence.members)
    if (const auto found = ours ? find(member, comm, ours->number) : std::nullopt; found && found->id() == ours->id())
      arrivals.push_back({.worker = member, .id = found->id(), .signature = ArrivalLine::signature(found->key)});
  std::vector<const Arrival*> by_rank;
  for (const Arrival& arrival : arrivals) by_rank.push_back(&arrival);
  std::string mismatch = find_mismatch(by_rank);
  if (mismatch.empty())
    mismatch = fmt::format(
        "workers {} and {} have started different collectives; which ones is overwritten by later ones: wait for "
        "them (sync_all) more often to see it",
        std::min(worker_, other), std::max(worker_, other));
  return {std::nullopt, std::move(mismatch)};
}

}  // namespace tutti::detail
