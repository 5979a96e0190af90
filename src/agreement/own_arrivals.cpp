#include "agreement/own_arrivals.h"

#include <fmt/format.h>

#include <cstring>

#include "agreement/agreement.h"

namespace tutti::detail {

/// Relaxed: the writer has stored them before its line, and the caller has read that line.
std::array<uint64_t, 6> attached_words(Board& board, int worker, int line) {
  std::array<uint64_t, 6> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = board.member(worker).attached[line][i].load(std::memory_order_relaxed);
  return words;
}

void OwnArrivals::check_may_join() const {
  if (left_.size() >= kMostLeft)
    throw UsageError(fmt::format("{} collectives have failed in this command; let the error out of the function", left_.size()));
}

/// Whoever agreed with us on what stands in that line may still have to read it.
void OwnArrivals::await_takers(int line) {
  for (const auto& [worker, count] : takers_[line]) {
    if (seen_taken_[static_cast<size_t>(worker)] >= count) continue;
    auto& taken = board_.member(worker).taken;
    const auto has_taken = [&, least = count] { return taken.load(std::memory_order_seq_cst) >= least; };
    board_.await(policy_, has_taken);
  }
  takers_[line].clear();
}

void OwnArrivals::join(Arrival& arrival, Readers readers) {
  const uint64_t number = ++arrived_;
  line_ = static_cast<int>(number % Board::kLines);
  await_takers(line_);
  BoardMember& slot = board_.member(worker_);
  arrival.worker = worker_;
  arrival.step = slot.step.load(std::memory_order_relaxed);
  arrival.taken = slot.taken.load(std::memory_order_relaxed);
  arrival.left = left_;
  const Attachment& attached = arrival.attached;
  if (!attached.has_bytes || has_parts(arrival.signature.op))
    for (size_t i = 0; i < attached.words.size(); ++i)
      slot.attached[line_][i].store(attached.words[i], std::memory_order_relaxed);
  if (attached.has_bytes && !attached.bytes.empty())
    std::memcpy(board_.attached_bytes(worker_, line_), attached.bytes.data(), attached.bytes.size());
  if (readers != Readers::kLine) {
    await_takers(1 - line_);  // there is one record
    write_record(arrival);
  }
  board_.line(worker_, line_)
      .write(number, ArrivalLine::key_of(arrival.id, arrival.signature), arrival.step, arrival.taken, readers != Readers::kLine);
  board_.bell().ring_ordered();
  if (readers == Readers::kLeader) plane_.tell_leader();
}

void OwnArrivals::write_record(const Arrival& arrival) {
  Writer out;
  encode(out, arrival);
  board_.arrival(worker_).write(out.bytes());
}

void OwnArrivals::tell_members(const Arrival& mine) {
  await_takers(1 - line_);
  write_record(mine);
}

void OwnArrivals::decline(const CollectiveId& id) {
  if (left_.size() >= kMostLeft) return;  // our leaving the command will tell
  left_.emplace_back(id, Origin{worker_, id.seq});
  Arrival arrival{.id = id};
  join(arrival, Readers::kLeader);
  over();
}

void OwnArrivals::leave(Arrival& mine, const Disagreement& why) {
  left_.emplace_back(mine.id, why.origin.value_or(Origin{worker_, mine.id.seq}));
  join(mine, Readers::kLeader);
  if (why.origin) throw ConsequenceError(*why.origin, why.message);
  throw UsageError(why.message);
}

void OwnArrivals::agrees(int worker, uint64_t taken) {
  takers_[line_].emplace_back(worker, taken + 1);
  seen_taken_[static_cast<size_t>(worker)] = taken;
}

/// In order with the bell: a member counts itself as asleep before its last look at this number, we store before we look at the
/// count.
void OwnArrivals::take() {
  auto& taken = board_.member(worker_).taken;
  taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  board_.bell().ring_ordered();
}

/// Release: what we have read of the others stays before it.
void OwnArrivals::take_quietly() {
  auto& taken = board_.member(worker_).taken;
  taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

/// Release: our accesses to memory of others stay before it (Board::may_move).
void OwnArrivals::over() { board_.member(worker_).ended.store(arrived_, std::memory_order_release); }

}  // namespace tutti::detail
