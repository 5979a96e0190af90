#include "agreement/node_protocol.h"

#include <algorithm>
#include <utility>

#include "agreement/board_view.h"
#include "agreement/leaver_turn.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kStragglers = 200ms;  // on a mismatch: how long to wait for the others, so that the message names all
constexpr auto kSuspect = 500ms;     // a wait of this length may be a deadlock

/// Only the root knows, and its record.
bool root_lists_parts(const Arrival& mine, BoardView& view) {
  if (!has_parts(mine.signature.op)) return false;
  const int root = mine.members[static_cast<size_t>(mine.signature.root)];
  if (root == mine.worker) return !mine.counts.empty();
  const auto arrival = view.arrival(root);
  return arrival && !arrival->counts.empty();
}

}  // namespace

void NodeProtocol::agree(Arrival& mine, const ArrivalLine::Key& key, bool line_is_enough, std::vector<Arrival>& arrivals) {
  const bool by_lines = line_is_enough && agree_by_lines(mine, key);
  if (!by_lines) {
    if (line_is_enough) own_.tell_members(mine);
    agree_slowly(mine);
  }
  read_arrivals(mine, by_lines, line_is_enough, arrivals);
}

/// A member that agreed stays as it arrived until all have taken note.
void NodeProtocol::read_arrivals(const Arrival& mine, bool by_lines, bool line_is_enough, std::vector<Arrival>& arrivals) {
  BoardView view(board_, mine.id);
  const bool has_bytes = mine.attached.has_bytes && (by_lines || !root_lists_parts(mine, view));
  arrivals.resize(mine.members.size());
  for (size_t r = 0; r < arrivals.size(); ++r) {
    const int32_t w = mine.members[r];
    Arrival& arrival = arrivals[r];
    if (w == own_.worker()) {
      arrival.worker = w;
      arrival.step = mine.step;
      arrival.counts = mine.counts;
      arrival.attached = mine.attached;
      arrival.attached.has_bytes = has_bytes;
      continue;
    }
    Lines late;
    if (!by_lines) late.line = view.line_of(w, late.seen);
    const auto& [versions, line, seen] = by_lines ? lines_[r] : late;
    if (line_is_enough && !seen.in_record) {
      arrival.worker = w;
      arrival.step = seen.step;
      arrival.taken = seen.taken;
      arrival.counts.clear();
    } else {
      auto recorded = view.arrival(w);
      if (!recorded) board_.check_not_abandoned();
      arrival = std::move(recorded).value();
    }
    arrival.attached.has_bytes = has_bytes;
    if (!has_bytes) arrival.attached.words = attached_words(board_, w, line);
    else if (mine.attached.in_line && !seen.in_record) arrival.attached.bytes = {board_.line(w, line).bytes(), kLineBytes};
    else arrival.attached.bytes = {board_.attached_bytes(w, line), kAttachedBytes};
    own_.agrees(w, arrival.taken);
  }
}

/// Whether a member has joined, by its lines alone.
NodeProtocol::Look NodeProtocol::look(int32_t member, const CollectiveId& id, const ArrivalLine::Key& key, Lines& lines) {
  lines.versions = {board_.line(member, 0).version(), board_.line(member, 1).version()};
  lines.line = lines.versions[1] > lines.versions[0];
  auto& seen = lines.seen;
  if (!board_.line(member, lines.line).read(seen)) return Look::kNotThere;
  if (seen.id() == id) return seen.key == key && !seen.in_record ? Look::kJoined : Look::kNotEnough;
  const bool may_have_left = seen.in_record;
  lines.line = 1 - lines.line;  // it has gone on
  if (!board_.line(member, lines.line).read(seen) || seen.key != key || seen.in_record) return Look::kNotThere;
  if (!may_have_left) return Look::kJoined;
  const auto arrival = BoardView(board_, id).arrival(member);  // to what needs its record
  const bool has_joined =
      arrival && arrival->id == id &&
      std::none_of(arrival->left.begin(), arrival->left.end(), [&](const auto& entry) { return entry.first == id; });
  return has_joined ? Look::kJoined : Look::kNotThere;
}

/// Without a look at anything but the members' lines, for as long as it is worth being awake. False: a member is late, or
/// differs.
bool NodeProtocol::agree_by_lines(const Arrival& mine, const ArrivalLine::Key& key) {
  const auto& members = mine.members;
  lines_.resize(members.size());
  bool is_enough = true;
  const auto has_joined = [&](size_t r) {
    if (members[r] == own_.worker()) return true;
    const Look found = look(members[r], mine.id, key, lines_[r]);
    is_enough &= found != Look::kNotEnough;
    return found == Look::kJoined;
  };
  const auto is_unchanged = [&](size_t r) {
    const auto& versions = lines_[r].versions;
    return members[r] == own_.worker() ||
           (board_.line(members[r], 0).version() == versions[0] && board_.line(members[r], 1).version() == versions[1]);
  };
  size_t late = 0;
  const auto settled = [&] {
    while (late < members.size() && has_joined(late)) ++late;
    if (!is_enough) return true;
    if (late < members.size()) return false;
    if (members.size() == 2) return true;
    for (size_t r = 0; r < members.size(); ++r)  // all at one moment: none has left while we looked
      if (!is_unchanged(r) && !has_joined(r)) return late = r, false;
    return true;
  };
  const bool in_time = settled() || wait_until(board_.bell(), policy_, Clock::now() + policy_.spin + policy_.yield, settled);
  return in_time && is_enough;
}

void NodeProtocol::agree_slowly(Arrival& mine) {
  BoardView view(board_, mine.id);
  const auto start = Clock::now();
  uint64_t stamp = 0;
  bool stragglers_may_come = true;
  Verdict verdict;
  auto look = [&] {  // grows with anything new
    uint64_t now = 1 + stragglers_may_come;
    for (int32_t w : mine.members)
      now += uint64_t{2} * (board_.line(w, 0).version() + board_.line(w, 1).version() + view.finished(w, mine.id.seq));
    return now;
  };
  auto settled = [&] {
    while (const uint64_t now = look()) {
      if (now == stamp) break;
      stamp = now;
      verdict = decide(mine, view, stragglers_may_come, nullptr);  // of one moment, if nothing came meanwhile
    }
    return verdict.kind != Verdict::Kind::kPending;
  };
  std::optional<Deadlock> suspicion;
  WaitPolicy policy = policy_;
  while (!wait_until(board_.bell(), policy, Clock::now() + Board::kTick, settled)) {
    policy = {.spin = {}, .yield = {}};  // it takes long: sleep at once
    board_.check_not_abandoned();
    stragglers_may_come = Clock::now() - start < kStragglers;
    if (Clock::now() - start < kSuspect) continue;
    auto found = deadlock();
    if (found && found == suspicion) {
      const LeaverTurn turn(board_);
      if (turn.is_mine() && deadlock() == found && !settled()) own_.leave(mine, {.origin = {}, .message = found->message});
    }
    suspicion = std::move(found);
  }
  if (verdict.kind != Verdict::Kind::kFailed) return;
  LeaverTurn turn(board_);
  turn.wait(board_);
  own_.leave(mine, verdict.why);
}

/// What is read of a node holds still: a member keeps an arrival until all others have taken a success (see OwnArrivals::join()),
/// so one whose two latest arrivals are other collectives has not joined ours.
std::optional<Deadlock> NodeProtocol::deadlock() {
  auto found = find_deadlock(plane_.look(), [&](const MemberState& state) {
    return std::all_of(state.members.begin(), state.members.end(), [&](int32_t member) { return board_.has(member); });
  });
  if (found && !found->has(own_.worker())) found.reset();
  return found;
}

}  // namespace tutti::detail
