#include "control/worker_agreement.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "control/failures.h"
#include "core/env.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
constexpr auto kStragglers = 200ms;  // on a mismatch: how long to wait for the others, so that the message names all
constexpr auto kTick = 50ms;
constexpr auto kSuspect = 500ms;  // a wait of this length may be a deadlock
constexpr size_t kMostFailures = 60;  // of collectives in one command: an arrival lists them and has a fixed size

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
  std::vector<std::byte> bytes;
  const SharedRecord record = segment_.arrival(worker);
  while (!record.read(bytes)) {
    if (segment_.abandoned()) return std::nullopt;  // its writer may have died over it
    yield_cpu();
  }
  if (bytes.empty()) return std::nullopt;
  Reader in(bytes);
  return decode_arrival(in);
}
bool SegmentView::finished(int worker, uint64_t seq) {
  return segment_.slot(worker).finished_seq.load(std::memory_order_seq_cst) >= seq;
}
std::optional<Origin> SegmentView::failure_at(int worker, uint64_t seq) {
  return Failures::at(segment_.failures(worker), seq, [this] { return segment_.abandoned(); });
}

void WorkerAgreement::begin_command(uint64_t seq) {
  seq_ = seq;
  indices_.clear();
  left_.clear();
  if (slots_->any()) slots_ = std::make_shared<std::bitset<kSubSlots>>();  // those of kept handles are void
}

CollectiveId WorkerAgreement::next_id(CommKey key) {
  faults_.at(Fault::Where::kCollective, seq_);
  return {key, seq_, indices_[key]++};
}

SubSlot WorkerAgreement::free_slot() {
  for (int tried = 0; tried < kSubSlots; ++tried) {
    const auto slot = static_cast<size_t>(next_slot_++ % kSubSlots);
    if (slots_->test(slot)) continue;
    slots_->set(slot);
    std::shared_ptr<void> taken(nullptr, [slot, slots = std::weak_ptr(slots_)](void*) {
      if (auto alive = slots.lock()) alive->reset(slot);
    });
    return {static_cast<int>(slot), segment_.commit_word(sub_key(worker_, static_cast<int>(slot)))->load(), std::move(taken)};
  }
  throw UsageError(fmt::format("split: worker {} leads {} communicators in this command, which is the most; drop some", worker_, kSubSlots));
}

void WorkerAgreement::write(Arrival& arrival) {
  // whoever agreed with us last may still have to read what we wrote then
  for (const auto& [worker, count] : takers_) {
    auto& taken = segment_.slot(worker).taken;
    const auto has_taken = [&, least = count] { return taken.load(std::memory_order_acquire) >= least; };
    while (!wait_until(segment_.header().board, policy_, Clock::now() + kTick, has_taken)) segment_.check_not_abandoned();
  }
  takers_.clear();
  arrival.worker = worker_;
  arrival.step = segment_.slot(worker_).step.load(std::memory_order_relaxed);
  arrival.taken = segment_.slot(worker_).taken.load(std::memory_order_relaxed);
  arrival.left = left_;
  Writer out;
  encode(out, arrival);
  segment_.arrival(worker_).write(out.bytes());
  segment_.header().board.ring();
  segment_.header().controller.ring();  // a leader carries it to the other nodes
}

void WorkerAgreement::decline(const CollectiveId& id) {
  if (left_.size() >= kMostFailures) return;  // our leaving the command will tell
  left_.emplace_back(id, here());
  Arrival arrival{.id = id};
  write(arrival);
}

std::vector<Arrival> WorkerAgreement::agree(Arrival mine) {
  if (left_.size() >= kMostFailures)
    throw UsageError(fmt::format("{} collectives have failed in this command; let the error out of the function", left_.size()));
  recorder_.begin_collective(mine.id, mine.signature);
  write(mine);
  const bool on_node = std::all_of(mine.members.begin(), mine.members.end(), [&](int w) { return segment_.has(w); });
  auto arrivals = on_node ? agree_on_node(mine) : agree_across_nodes(mine);
  recorder_.agreed();
  return arrivals;
}

std::vector<Arrival> WorkerAgreement::agree_on_node(const Arrival& mine) {
  SegmentView view(segment_);
  std::atomic<uint64_t>& word = *segment_.commit_word(mine.id.comm);
  uint64_t& round = rounds_[mine.id.comm];
  const auto start = Clock::now();
  uint64_t stamp = 0;
  bool stragglers_may_come = true;
  Verdict verdict;
  auto settled = [&] {
    if (word.load(std::memory_order_seq_cst) != round) return true;
    uint64_t now = stragglers_may_come;  // anything new since the last look?
    for (int32_t w : mine.members) now += uint64_t{2} * segment_.arrival(w).version() + uint64_t{2} * view.finished(w, mine.id.seq);
    if (now + 1 == stamp) return false;
    stamp = now + 1;
    verdict = decide(mine, view, stragglers_may_come, nullptr);
    if (verdict.kind == Verdict::Kind::kAgreed) {
      uint64_t expected = round;
      word.compare_exchange_strong(expected, round + 1);  // lost only to another member who saw the same
      segment_.header().board.ring();
    }
    return verdict.kind != Verdict::Kind::kPending;
  };
  std::optional<Deadlock> suspicion;
  while (!wait_until(segment_.header().board, policy_, Clock::now() + kTick, settled)) {
    segment_.check_not_abandoned();
    stragglers_may_come = Clock::now() - start < kStragglers;
    if (Clock::now() - start < kSuspect) continue;
    auto found = deadlock();
    if (found && found == suspicion) {
      if (settled()) break;  // it says so once
      leave(mine, {.origin = {}, .message = found->message});
    }
    suspicion = std::move(found);
  }
  // a member that has left may have left by success
  if (word.load(std::memory_order_seq_cst) == round) leave(mine, verdict.why);
  ++round;
  std::vector<Arrival> arrivals;
  for (int32_t w : mine.members) {
    arrivals.push_back(w == worker_ ? mine : view.arrival(w).value());
    if (w != worker_) takers_.emplace_back(w, arrivals.back().taken + 1);
  }
  segment_.slot(worker_).taken.fetch_add(1, std::memory_order_release);
  segment_.header().board.ring();
  return arrivals;
}

std::vector<Arrival> WorkerAgreement::agree_across_nodes(const Arrival& mine) {
  const SharedRecord record = segment_.verdict(worker_);
  uint64_t seen = UINT64_MAX;
  std::vector<std::byte> bytes;
  RemoteVerdict verdict;
  auto settled = [&] {
    const uint64_t version = record.version();
    if (version == seen || !record.read(bytes)) return false;
    seen = version;
    if (bytes.empty()) return false;
    Reader in(bytes);
    verdict = decode_remote_verdict(in);
    return verdict.id == mine.id;
  };
  while (!wait_until(segment_.header().board, policy_, Clock::now() + kTick, settled)) segment_.check_not_abandoned();
  if (!verdict.agreed) leave(mine, verdict.why);
  std::vector<Arrival> arrivals;
  for (size_t r = 0; r < mine.members.size(); ++r) {
    arrivals.push_back({.worker = mine.members[r], .id = mine.id, .signature = mine.signature});
    if (r < verdict.counts.size()) arrivals.back().counts = verdict.counts[r];
  }
  return arrivals;
}

/// What is read of a node holds still: a member writes its next arrival only after all others have taken a success (see write()), so
/// one whose latest arrival is another collective has not joined ours.
std::optional<Deadlock> WorkerAgreement::deadlock() {
  auto found = find_deadlock(look_at(segment_), [&](const WorkerState& state) {
    return std::all_of(state.members.begin(), state.members.end(), [&](int32_t member) { return segment_.has(member); });
  });
  if (found && !found->has(worker_)) found.reset();
  return found;
}

void WorkerAgreement::broken(const std::string& why) {
  segment_.abandon(fmt::format("worker {} (pid {} on {}) failed inside a collective that all had agreed on: {}", worker_, getpid(),
                               host_name(), why));
  segment_.check_not_abandoned();
  std::abort();  // not reached
}

void WorkerAgreement::leave(Arrival mine, const Disagreement& why) {
  left_.emplace_back(mine.id, why.origin.value_or(here()));
  write(mine);
  if (why.origin) throw ConsequenceError(*why.origin, why.message);
  throw UsageError(why.message);
}

}  // namespace tutti
