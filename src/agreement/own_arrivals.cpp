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

ArrivalLine::Key OwnArrivals::join(Arrival& arrival, Readers readers) {
  const uint64_t number = ++arrived_;
  line_ = static_cast<int>(number % Board::kLines);
  await_takers(line_);
  BoardMember& slot = board_.member(worker_);
  arrival.worker = worker_;
  arrival.step = slot.step.load(std::memory_order_relaxed);
  arrival.taken = slot.taken.load(std::memory_order_relaxed);
  arrival.left = left_;
  const bool by_line = readers == Readers::kLine;
  const Attachment& attached = arrival.attached;
  const bool may_move = !attached.has_bytes || has_parts(arrival.signature.op);
  if (may_move)
    for (size_t i = 0; i < attached.words.size(); ++i)
      slot.attached[line_][i].store(attached.words[i], std::memory_order_relaxed);
  uint64_t step = arrival.step;
  if (attached.has_bytes && !attached.bytes.empty())
    std::memcpy(by_line && attached.in_line ? reinterpret_cast<std::byte*>(&step) : board_.attached_bytes(worker_, line_),
                attached.bytes.data(), attached.bytes.size());
  if (!by_line) {
    await_takers(1 - line_);  // there is one record
    write_record(arrival);
  }
  // Where members only read what has come with the arrivals, nobody's memory is in danger while this store is under way: we may
  // look for the others' lines meanwhile, which takes as long again. Else it comes before our look whether the session is lost.
  const auto order = by_line && !may_move ? std::memory_order_release : std::memory_order_seq_cst;
  const auto key = ArrivalLine::key_of(arrival.id, arrival.signature);
  board_.line(worker_, line_).write(number, key, step, arrival.taken, !by_line, order);
  board_.bell().ring_ordered();
  if (readers == Readers::kLeader) plane_.tell_leader();
  return key;
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

void OwnArrivals::take() {
  take_quietly();
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
