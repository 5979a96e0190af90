#include "agreement/announcements.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agreement/board_view.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kDeclined = 200ms;
constexpr size_t kChains = 1024;  // a member that is so far behind can be compared with us

uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

uint64_t chained(uint64_t hash, const ArrivalLine::Key& key) {
  for (const uint64_t word : {key.comm, key.seq, key.index_root, key.what, key.count}) hash = mixed(hash, word);
  return hash;
}

std::string not_recorded(int worker, int other) {
  return fmt::format(
      "workers {} and {} have started different collectives; expected the same ones in the same order. The first "
      "difference is no longer recorded (a worker keeps its last {}): call sync_all more often, then the error names it",
      std::min(worker, other), std::max(worker, other), Board::kPast);
}

}  // namespace

const Announcement* Announcements::Sequence::at(uint32_t number) const {
  const Announcement& kept = past[number % past.size()];
  return number > 0 && kept.number == number ? &kept : nullptr;
}
std::optional<uint64_t> Announcements::Sequence::chain_at(uint32_t number) const {
  if (number == 0 || number > latest.number || latest.number - number >= chains.size()) return std::nullopt;
  return chains[number % chains.size()];
}

void Announcements::restart(uint64_t since) {
  since_ = since;
  sequences_.clear();
  open_.clear();
  latest_ = nullptr;
  lines_ = {};
}

void Announcements::add(const CollectiveId& id, const Signature& signature, const std::vector<int>& members) {
  if (members.size() < 2) return;
  if (!latest_ || latest_->comm() != id.comm) {
    auto known = sequences_.find(id.comm);
    if (known == sequences_.end()) {
      Sequence made{.members = members, .places = std::vector<size_t>(members.size())};
      made.past.resize(Board::kPast);
      made.chains.resize(kChains);
      made.latest = {.since = static_cast<uint32_t>(since_), .chain = since_};
      known = sequences_.emplace(id.comm, std::move(made)).first;
    }
    latest_ = &known->second;
  }
  Sequence& sequence = *latest_;
  open_.reserve(sequences_.size());  // what may throw comes before the announcement
  Announcement& a = sequence.latest;
  a.key = ArrivalLine::key_of(id, signature);
  ++a.number;
  a.chain = chained(a.chain, a.key);
  sequence.past[a.number % sequence.past.size()] = a;
  sequence.chains[a.number % sequence.chains.size()] = a.chain;
  ++announced_;
  a.write(board_.past(worker_, announced_), announced_);
  if (lines_[sequence.place % Board::kSequences] != &sequence)  // new, or its line was needed for another one
    sequence.place = places_++, lines_[sequence.place % Board::kSequences] = &sequence;
  a.write(board_.latest_of(worker_, sequence.place), announced_);
  if (!std::exchange(sequence.is_open, true)) open_.push_back(&sequence);
}

/// kNone: it has announced nothing of that communicator. kBusy: it is writing. kDropped: it may have announced something, and so
/// much else that the line was needed: places are taken in turn, so the oldest go first.
Announcements::Reading Announcements::read_latest(Sequence& sequence, size_t rank, Announcement& theirs) const {
  const auto since = static_cast<uint32_t>(since_);
  size_t& known = sequence.places[rank];
  bool has_older = false;
  for (size_t i = 0; i < Board::kSequences; ++i) {
    const size_t place = (known + i) % Board::kSequences;
    const ArrivalLine& line = board_.latest_of(sequence.members[rank], place);
    std::optional<Announcement> seen;
    for (int tries = 0; line.version() != 0 && !(seen = Announcement::read(line));)
      if (++tries > 1000) return Reading::kBusy;  // its writer has lost the CPU, or its life
    has_older |= !seen || static_cast<int32_t>(seen->since - since) < 0;
    if (!seen || seen->since != since || seen->key.comm != sequence.comm()) continue;
    known = place;
    theirs = *seen;
    return Reading::kFound;
  }
  return has_older ? Reading::kNone : Reading::kDropped;
}

std::optional<Disagreement> Announcements::look() {
  std::optional<Disagreement> why;
  std::erase_if(open_, [&](Sequence* sequence) {
    if (why) return false;
    bool all_there = true;
    why = look_at(*sequence, all_there);
    if (why || !all_there) return false;
    sequence->is_open = false;
    return true;
  });
  return why;
}

/// Members with the same number have started the same collectives if their chains are equal. A member that is ahead of us
/// compares its own past with our latest one when it looks, so one of the two does, unless they are very far apart.
std::optional<Disagreement> Announcements::look_at(Sequence& sequence, bool& all_there) {
  const Announcement& latest = sequence.latest;
  for (size_t rank = 0; rank < sequence.members.size(); ++rank) {
    const int member = sequence.members[rank];
    if (member == worker_) continue;
    Announcement theirs;
    Reading reading = read_latest(sequence, rank, theirs);
    if (theirs.number > latest.number) {
      const auto then = find_past(member, latest);
      if (then && then->chain != latest.chain) return difference(sequence, member, *then);
      continue;
    }
    if (const auto ours = sequence.chain_at(theirs.number); ours && *ours != theirs.chain)
      return difference(sequence, member, theirs);
    if (theirs.number == latest.number) continue;
    const Announcement* missed =
        reading == Reading::kFound || reading == Reading::kNone ? sequence.at(theirs.number + 1) : nullptr;
    if (!missed) missed = &latest;
    BoardView view(board_);
    const bool has_left = view.finished(member, missed->key.seq);
    auto why = has_left ? std::nullopt : circle(*missed, member);
    if (has_left || why) {  // none has come meanwhile: none will
      const uint32_t number = theirs.number;
      reading = read_latest(sequence, rank, theirs);
      if (theirs.number != number) return look_at(sequence, all_there);
    }
    if (reading == Reading::kBusy) {
      all_there = false;
      continue;
    }
    if (why && reading != Reading::kDropped) return why;
    const auto origin = has_left ? view.failure_at(member, missed->key.seq) : std::nullopt;
    if (origin || (has_left && reading != Reading::kDropped)) return departure(missed->signature().op, member, origin);
    if (reading != Reading::kDropped) all_there = false;  // what can't be read accuses nobody, and is not waited for
  }
  return std::nullopt;
}

/// The other waits to agree with us, in the command in which we wait for it: on a collective that we have not come to, or that we
/// have started as another one.
std::optional<Disagreement> Announcements::circle(const Announcement& missed, int other) {
  const auto theirs = BoardView(board_).arrival(other);
  if (!theirs || theirs->id.seq != missed.key.seq) return std::nullopt;
  for (const auto& [id, origin] : theirs->left) {
    if (id != missed.id()) continue;
    // its failure is about to be reported, unless its function keeps that to itself and goes on
    if (!declined_ || declined_->first != id) declined_ = {id, Clock::now()};
    if (Clock::now() - declined_->second < kDeclined) return std::nullopt;
    return Disagreement{std::nullopt, consequence(missed.signature().op, other, origin).message};
  }
  if (std::ranges::any_of(theirs->left, [&](const auto& entry) { return entry.first == theirs->id; })) return std::nullopt;
  if (const auto known = sequences_.find(theirs->id.comm); known != sequences_.end())
    for (const Announcement& ours : known->second.past)
      if (ours.number > 0 && ours.id() == theirs->id) {
        const Arrival mine{.worker = worker_, .id = ours.id(), .signature = ours.signature()};
        return Disagreement{std::nullopt, worker_ < other ? find_mismatch({&mine, &*theirs}) : find_mismatch({&*theirs, &mine})};
      }
  if (has_taken_(theirs->id)) return std::nullopt;
  if (std::ranges::find(theirs->members, worker_) == theirs->members.end()) return std::nullopt;
  return Disagreement{
      std::nullopt,
      fmt::format("deadlock in command {}: worker {} waits in {} for worker {}, and that in {} for worker {}; members "
                  "must come to collectives in the same order",
                  missed.key.seq, worker_, describe(missed.id(), missed.signature()), other,
                  describe(theirs->id, theirs->signature), worker_)};
}

std::optional<Announcement> Announcements::find_past(int worker, const Announcement& like) const {
  for (uint64_t n = 0; n < Board::kPast; ++n)
    if (const auto seen = Announcement::read(board_.past(worker, n));
        seen && seen->key.comm == like.key.comm && seen->since == like.since && seen->number == like.number)
      return seen;
  return std::nullopt;
}

/// Theirs of that number is not ours. Names the first difference that can still be seen.
Disagreement Announcements::difference(const Sequence& sequence, int other, const Announcement& theirs) const {
  if (!sequence.at(theirs.number)) return {std::nullopt, not_recorded(worker_, other)};
  Announcement a = *sequence.at(theirs.number), b = theirs;
  bool is_first = a.number == 1;
  while (const Announcement* ours = sequence.at(a.number - 1)) {
    const auto before = find_past(other, *ours);
    is_first = before && before->chain == ours->chain;
    if (!before || is_first) break;
    a = *ours, b = *before;
    is_first = a.number == 1;
  }
  if (a.id() != b.id()) {
    if (!is_first) return {std::nullopt, not_recorded(worker_, other)};
    const Announcement& missed = a.id() < b.id() ? a : b;
    const int absent = a.id() < b.id() ? other : worker_;
    return departure(missed.signature().op, absent, BoardView(board_).failure_at(absent, missed.key.seq));
  }
  std::vector<Arrival> arrivals;
  for (const int member : sequence.members) {
    const auto one = member == worker_ ? std::optional(a) : member == other ? std::optional(b) : find_past(member, a);
    if (one && one->id() == a.id()) arrivals.push_back({.worker = member, .id = one->id(), .signature = one->signature()});
  }
  std::vector<const Arrival*> by_rank;
  by_rank.reserve(arrivals.size());
  for (const Arrival& arrival : arrivals) by_rank.push_back(&arrival);
  std::string mismatch = find_mismatch(by_rank);
  if (mismatch.empty()) mismatch = not_recorded(worker_, other);
  return {std::nullopt, std::move(mismatch)};
}

}  // namespace tutti::detail
