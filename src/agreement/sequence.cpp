#include "agreement/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agreement/board_view.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kDeclined = 200ms;

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

/// kNone: it has announced nothing of that communicator. kBusy: it is writing. kDropped: it may have announced something, and so
/// much else that the line was needed: places are taken in turn, so the oldest go first.
enum class Reading { kFound, kNone, kBusy, kDropped };

Reading read_latest(Board& board, Sequence& ours, size_t rank, Announcement& theirs) {
  const uint32_t since = ours.latest.since;
  size_t& known = ours.places[rank];
  bool has_older = false;
  for (size_t i = 0; i < Board::kSequences; ++i) {
    const size_t place = (known + i) % Board::kSequences;
    const ArrivalLine& line = board.latest_of(ours.members[rank], place);
    std::optional<Announcement> seen;
    for (int tries = 0; line.version() != 0 && !(seen = Announcement::read(line));)
      if (++tries > 1000) return Reading::kBusy;  // its writer has lost the CPU, or its life
    has_older |= !seen || static_cast<int32_t>(seen->since - since) < 0;
    if (!seen || seen->since != since || seen->key.comm != ours.comm()) continue;
    known = place;
    theirs = *seen;
    return Reading::kFound;
  }
  return has_older ? Reading::kNone : Reading::kDropped;
}

/// Theirs of that number is not ours. Names the first difference that can still be seen.
Disagreement difference(Board& board, const Sequence& ours, int other, const Announcement& theirs) {
  if (!ours.at(theirs.number)) return {std::nullopt, not_recorded(ours.worker, other)};
  Announcement a = *ours.at(theirs.number), b = theirs;
  bool is_first = a.number == 1;
  while (const Announcement* earlier = ours.at(a.number - 1)) {
    const auto before = find_past(board, other, *earlier);
    is_first = before && before->chain == earlier->chain;
    if (!before || is_first) break;
    a = *earlier, b = *before;
    is_first = a.number == 1;
  }
  if (a.id() != b.id()) {
    if (!is_first) return {std::nullopt, not_recorded(ours.worker, other)};
    const bool is_theirs = a.id() < b.id();  // that is missed
    const Announcement& missed = is_theirs ? a : b;
    const int absent = is_theirs ? other : ours.worker;
    return departure(missed.signature().op, absent,
                     board.has(absent) ? BoardView(board).failure_at(absent, missed.key.seq) : std::nullopt);
  }
  std::vector<Arrival> arrivals;
  for (const int member : ours.members) {
    const auto one = member == ours.worker ? std::optional(a)
                     : member == other     ? std::optional(b)
                     : board.has(member)   ? find_past(board, member, a)
                                           : std::nullopt;
    if (one && one->id() == a.id()) arrivals.push_back({.worker = member, .id = one->id(), .signature = one->signature()});
  }
  std::vector<const Arrival*> by_rank;
  by_rank.reserve(arrivals.size());
  for (const Arrival& arrival : arrivals) by_rank.push_back(&arrival);
  std::string mismatch = find_mismatch(by_rank);
  if (mismatch.empty()) mismatch = not_recorded(ours.worker, other);
  return {std::nullopt, std::move(mismatch)};
}

}  // namespace

Sequence::Sequence(int worker, std::vector<int> members, uint64_t since, size_t chains_kept)
    : worker(worker),
      members(std::move(members)),
      latest{.since = static_cast<uint32_t>(since), .chain = since},
      past(Board::kPast),
      chains(chains_kept),
      places(this->members.size()) {}

void Sequence::add(const ArrivalLine::Key& key) {
  latest.key = key;
  ++latest.number;
  latest.chain = chained(latest.chain, key);
  past[latest.number % past.size()] = latest;
  chains[latest.number % chains.size()] = latest.chain;
}

const Announcement* Sequence::at(uint32_t number) const {
  const Announcement& kept = past[number % past.size()];
  return number > 0 && kept.number == number ? &kept : nullptr;
}

std::optional<uint64_t> Sequence::chain_at(uint32_t number) const {
  if (number == 0 || number > latest.number || latest.number - number >= chains.size()) return std::nullopt;
  return chains[number % chains.size()];
}

std::optional<Disagreement> Sequence::mismatch_with(const Arrival& theirs) const {
  const auto same = std::ranges::find_if(past, [&](const Announcement& one) { return one.number > 0 && one.id() == theirs.id; });
  const bool has_left = std::ranges::any_of(theirs.left, [&](const auto& entry) { return entry.first == theirs.id; });
  if (same == past.end() || has_left) return std::nullopt;
  const Arrival mine{.worker = worker, .id = same->id(), .signature = same->signature()};
  return Disagreement{std::nullopt, worker < theirs.worker ? find_mismatch({&mine, &theirs}) : find_mismatch({&theirs, &mine})};
}

void encode(Writer& out, const Sequence& s) {
  out.put(s.worker);
  out.list(s.members);
  const uint32_t kept = std::min<uint32_t>(s.latest.number, Board::kPast);
  out.put(uint64_t{kept});
  for (uint32_t number = s.latest.number - kept + 1; number <= s.latest.number; ++number) out.put(*s.at(number));
}

Sequence decode_sequence(Reader& in) {
  const auto worker = in.get<int32_t>();
  Sequence s(worker, in.list<int32_t>(), 0, Board::kPast);
  const uint64_t kept = in.count(sizeof(Announcement));
  if (kept == 0 || kept > Board::kPast) throw WireError("a sequence of no announcements, or of too many");
  for (uint64_t i = 0; i < kept; ++i) {
    const auto one = in.get<Announcement>();
    if (one.number == 0 || one.signature().op > CollectiveOp::kExchange) throw WireError("an unknown collective");
    if (i > 0 && (one.number != s.latest.number + 1 || one.since != s.latest.since || one.key.comm != s.comm()))
      throw WireError("announcements of different sequences");
    s.latest = one;
    s.past[one.number % s.past.size()] = one;
    s.chains[one.number % s.chains.size()] = one.chain;
  }
  return s;
}

std::optional<Announcement> find_past(Board& board, int worker, const Announcement& like) {
  for (uint64_t n = 0; n < Board::kPast; ++n)
    if (const auto seen = Announcement::read(board.past(worker, n));
        seen && seen->key.comm == like.key.comm && seen->since == like.since && seen->number == like.number)
      return seen;
  return std::nullopt;
}

Comparison compare(Board& board, Sequence& ours, size_t rank, const IsStuck& is_stuck) {
  const Announcement& latest = ours.latest;
  const int member = ours.members[rank];
  for (;;) {
    Announcement theirs;
    Reading reading = read_latest(board, ours, rank, theirs);
    if (theirs.number > latest.number) {
      const auto then = find_past(board, member, latest);
      if (then && then->chain != latest.chain) return {.why = difference(board, ours, member, *then)};
      return {};
    }
    if (const auto chain = ours.chain_at(theirs.number); chain && *chain != theirs.chain)
      return {.why = difference(board, ours, member, theirs)};
    if (theirs.number == latest.number) return {};
    const Announcement* missed = reading == Reading::kFound || reading == Reading::kNone ? ours.at(theirs.number + 1) : nullptr;
    if (!missed) missed = &latest;
    BoardView view(board);
    const bool has_left = view.finished(member, missed->key.seq);
    auto why = has_left ? std::nullopt : is_stuck(*missed, member);
    if (has_left || why) {  // none has come meanwhile: none will
      const uint32_t number = theirs.number;
      reading = read_latest(board, ours, rank, theirs);
      if (theirs.number != number) continue;
    }
    if (reading == Reading::kBusy) return {.is_there = false};
    if (why && reading != Reading::kDropped) return {.why = std::move(why)};
    const auto origin = has_left ? view.failure_at(member, missed->key.seq) : std::nullopt;
    if (origin || (has_left && reading != Reading::kDropped)) return {.why = departure(missed->signature().op, member, origin)};
    return {.is_there = reading == Reading::kDropped};
  }
}

std::optional<Disagreement> Declined::look(const Announcement& missed, int member, const Arrival& theirs) {
  for (const auto& [id, origin] : theirs.left) {
    if (id != missed.id()) continue;
    auto& seen = seen_.try_emplace({member, id.comm}, id, Clock::now()).first->second;
    if (seen.first != id) seen = {id, Clock::now()};
    if (Clock::now() - seen.second < kDeclined) return std::nullopt;
    return Disagreement{std::nullopt, consequence(missed.signature().op, member, origin).message};
  }
  return std::nullopt;
}

}  // namespace tutti::detail
