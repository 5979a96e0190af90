#include "control/worker_agreement.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "control/failures.h"
#include "core/env.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
constexpr auto kStragglers = 200ms;  // on a mismatch: how long to wait for the others, so that the message names all
constexpr auto kTick = 50ms;
constexpr auto kSuspect = 500ms;      // a wait of this length may be a deadlock
constexpr auto kMoving = 400ms;       // a member that moves data for longer is stuck, or dead; less than kGrace
constexpr size_t kMostFailures = 60;  // of collectives in one command: an arrival lists them and has a fixed size

/// To leave a collective without success, one worker at a time: as long as nobody else leaves, none of those in a deadlock can
/// come to what the one whose turn it is leaves.
class LeaverTurn {
 public:
  explicit LeaverTurn(Segment& segment) : taken_(segment.header().leaver), is_mine_(taken_.exchange(1) == 0) {}
  LeaverTurn(const LeaverTurn&) = delete;
  LeaverTurn& operator=(const LeaverTurn&) = delete;
  ~LeaverTurn() {
    if (is_mine_) taken_.store(0);
  }
  bool is_mine() const { return is_mine_; }
  void wait(Segment& segment) {  // nobody keeps it for more than a look around
    for (; !is_mine_; is_mine_ = taken_.exchange(1) == 0) {
      segment.check_not_abandoned();
      yield_cpu();
    }
  }

 private:
  std::atomic<int32_t>& taken_;
  bool is_mine_;
};

void put_operands(std::atomic<uint64_t>* words, const Arrival& arrival) {
  for (const Operand& o : {arrival.src, arrival.dst}) {
    (words++)->store(static_cast<uint64_t>(o.where) | static_cast<uint64_t>(static_cast<uint32_t>(o.fd)) << 2 | o.extent << 34,
                     std::memory_order_relaxed);
    (words++)->store(o.offset, std::memory_order_relaxed);
    (words++)->store(o.size_bytes, std::memory_order_relaxed);
  }
}

void get_operands(const std::atomic<uint64_t>* words, Arrival& arrival) {
  for (Operand* o : {&arrival.src, &arrival.dst}) {
    const uint64_t what = (words++)->load(std::memory_order_relaxed);
    o->where = static_cast<Operand::Where>(what & 3);
    o->fd = static_cast<int32_t>(what >> 2);
    o->extent = what >> 34;
    o->offset = (words++)->load(std::memory_order_relaxed);
    o->size_bytes = (words++)->load(std::memory_order_relaxed);
  }
}

/// Only the root knows, and its record.
bool root_lists_parts(const Arrival& mine, SegmentView& view) {
  if (!has_parts(mine.signature.op)) return false;
  const int root = mine.members[static_cast<size_t>(mine.signature.root)];
  if (root == mine.worker) return !mine.counts.empty();
  const auto arrival = view.arrival(root);
  return arrival && !arrival->counts.empty();
}

}  // namespace

void encode(Writer& out, const RemoteVerdict& v) {
  encode(out, v.id);
  out.put(static_cast<uint8_t>(v.agreed));
  Failures::encode_origin(out, v.why.origin.value_or(Origin{}));
  out.text(std::string_view(v.why.message).substr(0, 3000));
  out.put(static_cast<uint64_t>(v.counts.size()));
  for (const auto& counts : v.counts) out.list(counts);
}

RemoteVerdict decode_remote_verdict(Reader& in) {
  RemoteVerdict v;
  v.id = decode_collective_id(in);
  v.agreed = in.get<uint8_t>() != 0;
  if (const Origin origin = Failures::decode_origin(in); origin.worker >= 0) v.why.origin = origin;
  v.why.message = in.text();
  for (uint64_t n = in.count(8); n > 0; --n) v.counts.push_back(in.list<int64_t>());
  return v;
}

std::optional<Arrival> SegmentView::arrival(int worker) {
  const SharedRecord record = segment_.arrival(worker);
  ArrivalLine::Seen latest{}, before{};
  std::vector<std::byte> bytes;
  std::optional<Arrival> recorded;
  bool has_before = false;
  for (;;) {
    const ArrivalLine* lines[] = {&segment_.arrival_line(worker, 0), &segment_.arrival_line(worker, 1)};
    if (lines[1]->version() > lines[0]->version()) std::swap(lines[0], lines[1]);
    if (lines[0]->version() == 0) return std::nullopt;
    if (lines[0]->read(latest) && record.read(bytes)) {
      recorded.reset();
      if (!bytes.empty()) {
        Reader in(bytes);
        recorded = decode_arrival(in);
      }
      has_before = lines[1]->read(before);
      // a record is written before its line: without that its worker has not arrived
      if (!latest.in_record || (recorded && recorded->id == latest.id())) break;
    }
    if (segment_.abandoned()) return std::nullopt;  // its writer may have died over it
    yield_cpu();
  }
  const auto as_arrived = [&](const ArrivalLine::Seen& seen) -> std::optional<Arrival> {
    Arrival arrival = ArrivalLine::arrival(seen, worker);
    return seen.in_record || (recorded && recorded->id == arrival.id) ? recorded : arrival;
  };
  if (wanted_ && has_before && before.id() == *wanted_ && latest.id() != *wanted_) {
    const auto is_wanted = [&](const auto& entry) { return entry.first == *wanted_; };
    if (recorded && std::any_of(recorded->left.begin(), recorded->left.end(), is_wanted)) return recorded;
    if (auto arrival = as_arrived(before); arrival && arrival->id == *wanted_) return arrival;
  }
  return as_arrived(latest);
}

/// Leaders go by records, which are written before the lines: this one's may be on its way.
int SegmentView::line_of(int worker, ArrivalLine::Seen& seen) {
  for (;; yield_cpu()) {
    for (int line = 0; line < Segment::kLines; ++line)
      if (segment_.arrival_line(worker, line).read(seen) && seen.id() == *wanted_) return line;
    segment_.check_not_abandoned();
  }
}

std::vector<CollectiveId> SegmentView::joined(int worker) {
  std::vector<CollectiveId> ids;
  ArrivalLine::Seen seen{};
  for (int line = 0; line < Segment::kLines; ++line)
    if (segment_.arrival_line(worker, line).version() != 0 && segment_.arrival_line(worker, line).read(seen))
      ids.push_back(seen.id());
  return ids;
}

bool SegmentView::finished(int worker, uint64_t seq) {
  const WorkerSlot& slot = segment_.slot(worker);
  // in this order: a failure that a later one has replaced is of a command that is finished by then
  return slot.failed_seq.load(std::memory_order_seq_cst) == seq || slot.finished_seq.load(std::memory_order_seq_cst) >= seq;
}
std::optional<Origin> SegmentView::failure_at(int worker, uint64_t seq) {
  return Failures::at(segment_.failures(worker), seq, [this] { return segment_.abandoned(); });
}

void WorkerAgreement::begin_command(uint64_t seq) {
  seq_ = seq;
  indices_.clear();
  left_.clear();
  sub_uses_ = 0;
  if (slots_->any()) slots_ = std::make_shared<std::bitset<kSubSlots>>();  // those of kept handles are void
}

CollectiveId WorkerAgreement::next_id(CommKey key) {
  faults_.at(Fault::Where::kCollective, seq_);
  return {key, seq_, indices_[key]++};
}

SubSlot WorkerAgreement::free_slot() {
  const uint32_t use = sub_uses_++;  // another use of a slot is another communicator: peers count its collectives anew
  for (size_t tried = 0; tried < kSubSlots; ++tried) {
    const size_t slot = (use + tried) % kSubSlots;
    if (slots_->test(slot)) continue;
    slots_->set(slot);
    std::shared_ptr<void> taken(nullptr, [slot, slots = std::weak_ptr(slots_)](void*) {
      if (auto alive = slots.lock()) alive->reset(slot);
    });
    return {static_cast<int>(slot), use, std::move(taken)};
  }
  throw UsageError(
      fmt::format("split: worker {} leads {} communicators in this command, which is the most; drop some", worker_, kSubSlots));
}

/// Whoever agreed with us on what stands in that line may still have to read it.
void WorkerAgreement::await_takers(int line) {
  for (const auto& [worker, count] : takers_[line]) {
    if (seen_taken_[static_cast<size_t>(worker)] >= count) continue;
    auto& taken = segment_.slot(worker).taken;
    const auto has_taken = [&, least = count] { return taken.load(std::memory_order_seq_cst) >= least; };
    while (!wait_until(segment_.header().board, policy_, Clock::now() + kTick, has_taken)) segment_.check_not_abandoned();
  }
  takers_[line].clear();
}

void WorkerAgreement::write(Arrival& arrival, Readers readers) {
  const uint64_t number = ++arrived_;
  line_ = static_cast<int>(number % Segment::kLines);
  await_takers(line_);
  WorkerSlot& slot = segment_.slot(worker_);
  arrival.worker = worker_;
  arrival.step = slot.step.load(std::memory_order_relaxed);
  arrival.taken = slot.taken.load(std::memory_order_relaxed);
  arrival.left = left_;
  if (!arrival.is_eager || has_parts(arrival.signature.op)) put_operands(slot.operands[line_], arrival);
  if (arrival.is_eager && !arrival.eager.empty())
    std::memcpy(segment_.eager(worker_, line_), arrival.eager.data(), arrival.eager.size());
  if (readers != Readers::kLine) {
    await_takers(1 - line_);  // there is one record
    write_record(arrival);
  }
  segment_.arrival_line(worker_, line_)
      .write(number, ArrivalLine::key_of(arrival.id, arrival.signature), arrival.step, arrival.taken, readers != Readers::kLine);
  segment_.header().board.ring_ordered();
  if (readers == Readers::kLeader) segment_.header().controller.ring();
}

void WorkerAgreement::write_record(const Arrival& arrival) {
  Writer out;
  encode(out, arrival);
  segment_.arrival(worker_).write(out.bytes());
}

void WorkerAgreement::decline(const CollectiveId& id) {
  if (left_.size() >= kMostFailures) return;  // our leaving the command will tell
  left_.emplace_back(id, here());
  Arrival arrival{.id = id};
  write(arrival, Readers::kLeader);
  segment_.slot(worker_).ended.store(arrived_, std::memory_order_release);
}

const std::vector<Arrival>& WorkerAgreement::agree(Arrival& mine) {
  if (left_.size() >= kMostFailures)
    throw UsageError(fmt::format("{} collectives have failed in this command; let the error out of the function", left_.size()));
  recorder_.begin_collective(mine.id, mine.signature);
  const bool on_node = std::all_of(mine.members.begin(), mine.members.end(), [&](int w) { return segment_.has(w); });
  const CollectiveOp op = mine.signature.op;
  has_part_of_all_ = on_node && mine.signature.count > 0 &&
                     (op == CollectiveOp::kAllreduce || op == CollectiveOp::kReduceScatter || op == CollectiveOp::kAllgather ||
                      op == CollectiveOp::kAllToAll);
  const bool line_is_enough = on_node && left_.empty() && mine.counts.empty();
  write(mine, line_is_enough ? Readers::kLine : on_node && left_.empty() ? Readers::kRecord : Readers::kLeader);
  // others may agree with us from here on; and those that have lost the session wait for us, or we see that it is lost
  segment_.check_not_abandoned();
  try {
    if (on_node) agree_on_node(mine, line_is_enough);
    else agree_across_nodes(mine);
  } catch (const UsageError&) {  // it has left, as has a ConsequenceError's
    throw;
  } catch (const ConsequenceError&) {
    throw;
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& error) {
    broken(error.what());
  }
  return arrivals_;
}

void WorkerAgreement::lost() {
  segment_.slot(worker_).ended.store(arrived_, std::memory_order_release);
  const auto may_move = [&](int32_t other) {
    const uint64_t arrived = std::max(segment_.arrival_line(other, 0).version(), segment_.arrival_line(other, 1).version()) / 2;
    return arrived > segment_.slot(other).ended.load(std::memory_order_acquire);
  };
  const auto end = Clock::now() + kMoving;
  for (int32_t other : segment_.workers())
    while (may_move(other) && Clock::now() < end) std::this_thread::sleep_for(100us);
}

void WorkerAgreement::ends(bool well) {
  segment_.slot(worker_).ended.store(arrived_, std::memory_order_release);
  recorder_.end_collective(well ? Record::State::kDone : Record::State::kFailed);
  if (std::exchange(takes_at_end_, false)) return take();
  if (well && has_part_of_all_) takers_[line_].clear();  // whose part we have has read our arrival
}

void WorkerAgreement::agree_on_node(Arrival& mine, bool line_is_enough) {
  const bool by_lines = line_is_enough && agree_by_lines(mine);
  if (!by_lines) {
    if (line_is_enough) {  // it has become worth telling who the members are
      await_takers(1 - line_);
      write_record(mine);
    }
    agree_slowly(mine);
  }
  // a member that agreed stays as it arrived until all have taken note
  SegmentView view(segment_, mine.id);
  const bool is_eager = mine.is_eager && (by_lines || !root_lists_parts(mine, view));
  arrivals_.resize(mine.members.size());
  for (size_t r = 0; r < arrivals_.size(); ++r) {
    const int32_t w = mine.members[r];
    Arrival& arrival = arrivals_[r];
    if (w == worker_) {
      arrival = mine;
      arrival.is_eager = is_eager;
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
      if (!recorded) segment_.check_not_abandoned();
      arrival = std::move(recorded).value();
    }
    arrival.is_eager = is_eager;
    if (is_eager) arrival.eager = {segment_.eager(w, line), kEagerBytes};
    else get_operands(segment_.slot(w).operands[line], arrival);
    takers_[line_].emplace_back(w, arrival.taken + 1);
    seen_taken_[static_cast<size_t>(w)] = arrival.taken;
  }
  recorder_.agreed();  // before others may go on: they must not see us wait
  takes_at_end_ = is_eager;
  if (takes_at_end_) return;
  if (has_part_of_all_) {
    auto& taken = segment_.slot(worker_).taken;
    return taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_release);  // nobody waits for it
  }
  take();
}

/// The others may write anew.
void WorkerAgreement::take() {
  auto& taken = segment_.slot(worker_).taken;
  taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  segment_.header().board.ring_ordered();
}

/// Without a look at anything but the members' lines, for as long as it is worth being awake. False: somebody is late, or
/// differs.
bool WorkerAgreement::agree_by_lines(const Arrival& mine) {
  const auto key = ArrivalLine::key_of(mine.id, mine.signature);
  bool is_not_enough = false;  // somebody's line
  const auto has_joined = [&](int32_t w) {
    const ArrivalLine* lines[] = {&segment_.arrival_line(w, 0), &segment_.arrival_line(w, 1)};
    if (lines[1]->version() > lines[0]->version()) std::swap(lines[0], lines[1]);
    ArrivalLine::Seen seen{};
    if (!lines[0]->read(seen)) return false;
    is_not_enough |= seen.id() == mine.id && (seen.key != key || seen.in_record);
    if (seen.key == key) return !seen.in_record;
    const bool may_have_left = seen.in_record;
    if (!lines[1]->read(seen) || seen.key != key || seen.in_record) return false;
    if (!may_have_left) return true;
    const auto arrival = SegmentView(segment_, mine.id).arrival(w);  // it went on to what needs its record
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
  const bool in_time =
      settled() || wait_until(segment_.header().board, policy_, Clock::now() + policy_.spin + policy_.yield, settled);
  return in_time && !is_not_enough;
}

void WorkerAgreement::agree_slowly(Arrival& mine) {
  SegmentView view(segment_, mine.id);
  const auto start = Clock::now();
  uint64_t stamp = 0;
  bool stragglers_may_come = true;
  Verdict verdict;
  auto look = [&] {  // grows with anything new
    uint64_t now = 1 + stragglers_may_come;
    for (int32_t w : mine.members)
      now += uint64_t{2} *
             (segment_.arrival_line(w, 0).version() + segment_.arrival_line(w, 1).version() + view.finished(w, mine.id.seq));
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
  while (!wait_until(segment_.header().board, policy, Clock::now() + kTick, settled)) {
    policy = {.spin = {}, .yield = {}};  // it takes long: sleep at once
    segment_.check_not_abandoned();
    stragglers_may_come = Clock::now() - start < kStragglers;
    if (Clock::now() - start < kSuspect) continue;
    auto found = deadlock();
    if (found && found == suspicion) {
      const LeaverTurn turn(segment_);
      if (turn.is_mine() && deadlock() == found && !settled()) leave(mine, {.origin = {}, .message = found->message});
    }
    suspicion = std::move(found);
  }
  if (verdict.kind != Verdict::Kind::kFailed) return;
  LeaverTurn turn(segment_);
  turn.wait(segment_);
  leave(mine, verdict.why);
}

void WorkerAgreement::agree_across_nodes(Arrival& mine) {
  const SharedRecord record = segment_.verdict(worker_);
  uint64_t seen = UINT64_MAX;
  std::vector<std::byte> bytes;
  RemoteVerdict verdict;
  auto settled = [&] {
    if (!record.read_next(bytes, seen) || bytes.empty()) return false;
    Reader in(bytes);
    verdict = decode_remote_verdict(in);
    return verdict.id == mine.id;
  };
  while (!wait_until(segment_.header().board, policy_, Clock::now() + kTick, settled)) segment_.check_not_abandoned();
  if (!verdict.agreed) leave(mine, verdict.why);
  arrivals_.assign(mine.members.size(), {});
  for (size_t r = 0; r < mine.members.size(); ++r) {
    arrivals_[r] = {.worker = mine.members[r], .id = mine.id, .signature = mine.signature};
    if (r < verdict.counts.size()) arrivals_[r].counts = verdict.counts[r];
  }
  // those of this node may move data through its memory, and stay as they arrived until they have all taken note
  SegmentView view(segment_, mine.id);
  for (Arrival& arrival : arrivals_) {
    if (arrival.worker == worker_) {
      arrival.src = mine.src;
      arrival.dst = mine.dst;
      arrival.step = mine.step;
    } else if (segment_.has(arrival.worker)) {
      ArrivalLine::Seen seen{};
      const int line = view.line_of(arrival.worker, seen);
      arrival.step = seen.step;
      get_operands(segment_.slot(arrival.worker).operands[line], arrival);
      takers_[line_].emplace_back(arrival.worker, seen.taken + 1);
      seen_taken_[static_cast<size_t>(arrival.worker)] = seen.taken;
    }
  }
  recorder_.agreed();
  take();
}

/// What is read of a node holds still: a member keeps an arrival until all others have taken a success (see write()), so one
/// whose two latest arrivals are other collectives has not joined ours.
std::optional<Deadlock> WorkerAgreement::deadlock() {
  auto found = find_deadlock(look_at(segment_), [&](const WorkerState& state) {
    return std::all_of(state.members.begin(), state.members.end(), [&](int32_t member) { return segment_.has(member); });
  });
  if (found && !found->has(worker_)) found.reset();
  return found;
}

/// Memory of a member that has died can't be mapped, or there is none left, say: who watches over a member that has died knows
/// the cause better, and may speak first.
void WorkerAgreement::broken(const std::string& why) {
  for (const auto end = Clock::now() + kMoving; !segment_.abandoned() && Clock::now() < end;) std::this_thread::sleep_for(1ms);
  try {
    segment_.abandon(fmt::format("worker {} (pid {} on {}) failed inside a collective that the others may have agreed on: {}",
                                 worker_, getpid(), host_name(), why));
  } catch (const std::bad_alloc&) {
    segment_.abandon("a worker has no memory left, inside a collective that the others may have agreed on");
  }
  lost();
  segment_.check_not_abandoned();
  std::abort();  // not reached
}

void WorkerAgreement::leave(Arrival& mine, const Disagreement& why) {
  left_.emplace_back(mine.id, why.origin.value_or(here()));
  write(mine, Readers::kLeader);
  if (why.origin) throw ConsequenceError(*why.origin, why.message);
  throw UsageError(why.message);
}

}  // namespace tutti
