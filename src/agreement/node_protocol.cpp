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

void NodeProtocol::agree(Arrival& mine, bool line_is_enough, std::vector<Arrival>& arrivals) {
  const bool by_lines = line_is_enough && agree_by_lines(mine);
  if (!by_lines) {
    if (line_is_enough) own_.tell_members(mine);
    agree_slowly(mine);
  }
  // a member that agreed stays as it arrived until all have taken note
  BoardView view(board_, mine.id);
  const bool has_bytes = mine.attached.has_bytes && (by_lines || !root_lists_parts(mine, view));
  arrivals.resize(mine.members.size());
  for (size_t r = 0; r < arrivals.size(); ++r) {
    const int32_t w = mine.members[r];
    Arrival& arrival = arrivals[r];
    if (w == own_.worker()) {
      arrival = mine;
      arrival.attached.has_bytes = has_bytes;
      continue;
    }
    ArrivalLine::Seen seen{};
    const int line = view.line_of(w, seen);
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
    if (has_bytes) arrival.attached.bytes = {board_.attached_bytes(w, line), kAttachedBytes};
    else arrival.attached.words = attached_words(board_, w, line);
    own_.agrees(w, arrival.taken);
  }
}

/// Without a look at anything but the members' lines, for as long as it is worth being awake. False: somebody is late, or
/// differs.
bool NodeProtocol::agree_by_lines(const Arrival& mine) {
  const auto key = ArrivalLine::key_of(mine.id, mine.signature);
  bool is_not_enough = false;  // somebody's line
  const auto has_joined = [&](int32_t w) {
    const ArrivalLine* lines[] = {&board_.line(w, 0), &board_.line(w, 1)};
    if (lines[1]->version() > lines[0]->version()) std::swap(lines[0], lines[1]);
    ArrivalLine::Seen seen{};
    if (!lines[0]->read(seen)) return false;
    is_not_enough |= seen.id() == mine.id && (seen.key != key || seen.in_record);
    if (seen.key == key) return !seen.in_record;
    const bool may_have_left = seen.in_record;
    if (!lines[1]->read(seen) || seen.key != key || seen.in_record) return false;
    if (!may_have_left) return true;
    const auto arrival = BoardView(board_, mine.id).arrival(w);  // it went on to what needs its record
    return arrival && arrival->id == mine.id &&
           std::none_of(arrival->left.begin(), arrival->left.end(), [&](const auto& entry) { return entry.first == mine.id; });
  };
  size_t late = 0;
  const auto settled = [&] {
    while (late < mine.members.size() && has_joined(mine.members[late])) ++late;
    if (is_not_enough) return true;
    // all at one moment: nobody has left while we waited for the last
    return late == mine.members.size() && std::all_of(mine.members.begin(), mine.members.end(), has_joined);
  };
  const bool in_time = settled() || wait_until(board_.bell(), policy_, Clock::now() + policy_.spin + policy_.yield, settled);
  return in_time && !is_not_enough;
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
