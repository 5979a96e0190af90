#include "agreement/announcements.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agreement/board_view.h"

namespace tutti::detail {
namespace {

constexpr size_t kChains = 1024;  // a member that is so far behind can be compared with us

}  // namespace

void Announcements::restart(uint64_t since) {
  since_ = since;
  withdraw();
  sequences_.clear();
  open_.clear();
  latest_ = nullptr;
  lines_ = {};
}

void Announcements::add(const CollectiveId& id, const Signature& signature, const std::vector<int>& members) {
  if (members.size() < 2) return;
  if (!latest_ || latest_->comm() != id.comm) {
    auto known = sequences_.find(id.comm);
    if (known == sequences_.end()) known = sequences_.emplace(id.comm, Own(Sequence(worker_, members, since_, kChains))).first;
    latest_ = &known->second;
  }
  Own& own = *latest_;
  open_.reserve(sequences_.size());  // what may throw comes before the announcement
  own.add(ArrivalLine::key_of(id, signature));
  ++announced_;
  own.latest.write(board_.past(worker_, announced_), announced_);
  if (lines_[own.place % Board::kSequences] != &own)  // new, or its line was needed for another one
    own.place = places_++, lines_[own.place % Board::kSequences] = &own;
  own.latest.write(board_.latest_of(worker_, own.place), announced_);
  if (!std::exchange(own.is_open, true)) open_.push_back(&own);
}

std::optional<Disagreement> Announcements::look() {
  std::optional<Disagreement> why;
  // what is being started is asked for first: NCCL may wait for its members
  if (const auto at = std::ranges::find(open_, latest_); at != open_.end()) std::rotate(open_.begin(), at, at + 1);
  std::erase_if(open_, [&](Own* own) {
    if (why) return false;
    bool all_there = true;
    why = look_at(*own, all_there);
    if (why || !all_there) return false;
    own->is_open = false;
    return true;
  });
  return why;
}

std::optional<Disagreement> Announcements::look_at(Own& own, bool& all_there) {
  bool is_far = false;
  for (size_t rank = 0; rank < own.members.size(); ++rank) {
    const int member = own.members[rank];
    if (member == worker_) continue;
    if (!board_.has(member)) {
      is_far = true;
      continue;
    }
    auto found = compare(board_, own, rank, [&](const Announcement& missed, int other) { return circle(missed, other); });
    if (found.why) return std::move(found.why);
    all_there &= found.is_there;
  }
  return is_far ? ask(own, all_there) : std::nullopt;
}

/// The leaders of the other nodes look for us. One question at a time.
std::optional<Disagreement> Announcements::ask(Own& own, bool& all_there) {
  if (own.answered == own.latest.number) return std::nullopt;
  const bool are_here = std::exchange(all_there, false);
  if (!asked_) {
    Writer out;
    encode(out, own);
    board_.question(worker_).write(out.bytes());
    asked_ = own.id();
    tell_leader_();
    return std::nullopt;
  }
  const SharedRecord record = board_.answer(worker_);
  std::vector<std::byte> bytes;
  if (asked_->comm != own.comm() || !record.read_next(bytes, answer_seen_)) return std::nullopt;
  Reader in(bytes);
  Answer answer = decode_answer(in);
  if (answer.id != *asked_) return std::nullopt;
  withdraw();
  if (!answer.why) own.answered = static_cast<uint32_t>(answer.id.number);
  all_there = are_here && own.answered == own.latest.number;
  return std::move(answer.why);
}

void Announcements::withdraw() {
  if (std::exchange(asked_, std::nullopt)) board_.question(worker_).write({});
}

/// The other waits to agree with us, in the command in which we wait for it: on a collective that we have not come to, or that we
/// have started as another one.
std::optional<Disagreement> Announcements::circle(const Announcement& missed, int other) {
  const auto theirs = BoardView(board_).arrival(other);
  if (!theirs || theirs->id.seq != missed.key.seq) return std::nullopt;
  const auto has_left = [&](const CollectiveId& id) {
    return std::ranges::any_of(theirs->left, [&](const auto& entry) { return entry.first == id; });
  };
  if (has_left(missed.id())) return declined_.look(missed, other, *theirs);
  if (has_left(theirs->id)) return std::nullopt;
  if (const auto known = sequences_.find(theirs->id.comm); known != sequences_.end())
    if (auto why = known->second.mismatch_with(*theirs)) return why;
  if (has_taken_(theirs->id)) return std::nullopt;
  if (std::ranges::find(theirs->members, worker_) == theirs->members.end()) return std::nullopt;
  return Disagreement{
      std::nullopt,
      fmt::format("deadlock in command {}: worker {} waits in {} for worker {}, and that in {} for worker {}; members "
                  "must come to collectives in the same order",
                  missed.key.seq, worker_, describe(missed.id(), missed.signature()), other,
                  describe(theirs->id, theirs->signature), worker_)};
}

}  // namespace tutti::detail
