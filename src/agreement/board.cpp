#include "agreement/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/error.h"

namespace tutti::detail {
namespace {

constexpr size_t kFailuresBytes = 4096, kAnswerBytes = 4096;

size_t align(size_t n) { return (n + 63) / 64 * 64; }

}  // namespace

Board::Offsets Board::offsets(int num_workers, size_t n) {
  Offsets o{};
  // an arrival: fixed part, members, counts, and room for collectives that were left
  o.arrival_bytes = 4096 + static_cast<size_t>(num_workers) * 20;
  o.verdict_bytes =
      4096 + static_cast<size_t>(num_workers) * 8 * (1 + kMostSplitCounts);  // the members' counts, or why it failed
  o.question_bytes = 4096 + static_cast<size_t>(num_workers) * 4;
  size_t at = align(sizeof(BoardHeader));
  const auto take = [&](size_t bytes) { return std::exchange(at, at + align(bytes)); };
  o.members = take(n * sizeof(BoardMember));
  o.lines = take(n * kLines * sizeof(ArrivalLine));
  o.latest = take(n * kSequences * sizeof(ArrivalLine));
  o.past = take(n * kPast * sizeof(ArrivalLine));
  o.attached = take(n * kLines * kAttachedBytes);
  o.arrivals = take(n * align(SharedRecord::footprint(o.arrival_bytes)));
  o.verdicts = take(n * align(SharedRecord::footprint(o.verdict_bytes)));
  o.questions = take(n * align(SharedRecord::footprint(o.question_bytes)));
  o.answers = take(n * align(SharedRecord::footprint(kAnswerBytes)));
  o.failures = take(n * align(SharedRecord::footprint(kFailuresBytes)));
  o.end = at;
  return o;
}

size_t Board::size_bytes(int num_workers, size_t workers_here) { return offsets(num_workers, workers_here).end; }

Board::Board(std::byte* memory, int num_workers, std::vector<int32_t> workers)
    : memory_(memory),
      offsets_(offsets(num_workers, workers.size())),
      workers_(std::move(workers)),
      local_index_(static_cast<size_t>(num_workers), -1) {
  for (size_t i = 0; i < workers_.size(); ++i) local_index_[static_cast<size_t>(workers_[i])] = static_cast<int32_t>(i);
}

std::byte* Board::attached_bytes(int worker, int line) {
  return memory_ + offsets_.attached + (index_of(worker) * kLines + static_cast<size_t>(line)) * kAttachedBytes;
}
ArrivalLine& Board::latest_of(int worker, size_t sequence) {
  return reinterpret_cast<ArrivalLine*>(memory_ + offsets_.latest)[index_of(worker) * kSequences + sequence % kSequences];
}
ArrivalLine& Board::past(int worker, uint64_t number) {
  return reinterpret_cast<ArrivalLine*>(memory_ + offsets_.past)[index_of(worker) * kPast + number % kPast];
}
SharedRecord Board::arrival(int worker) {
  return {memory_ + offsets_.arrivals + index_of(worker) * align(SharedRecord::footprint(offsets_.arrival_bytes)),
          offsets_.arrival_bytes};
}
SharedRecord Board::verdict(int worker) {
  return {memory_ + offsets_.verdicts + index_of(worker) * align(SharedRecord::footprint(offsets_.verdict_bytes)),
          offsets_.verdict_bytes};
}
SharedRecord Board::question(int worker) {
  return {memory_ + offsets_.questions + index_of(worker) * align(SharedRecord::footprint(offsets_.question_bytes)),
          offsets_.question_bytes};
}
SharedRecord Board::answer(int worker) {
  return {memory_ + offsets_.answers + index_of(worker) * align(SharedRecord::footprint(kAnswerBytes)), kAnswerBytes};
}
SharedRecord Board::failures(int worker) {
  return {memory_ + offsets_.failures + index_of(worker) * align(SharedRecord::footprint(kFailuresBytes)), kFailuresBytes};
}

/// Acquire: with the last of its arrivals ended, what it has done in the memory of others is done.
bool Board::may_move(int worker) {
  const uint64_t arrived = std::max(line(worker, 0).version(), line(worker, 1).version()) / 2;
  return arrived > member(worker).ended.load(std::memory_order_acquire);
}

void Board::tell_device_loss(const DeviceLoss& loss) {
  auto& shown = header().device_loss;
  for (uint64_t before = shown.claimed.load(); before < loss.since;) {
    if (!shown.claimed.compare_exchange_weak(before, loss.since)) continue;
    shown.worker.store(loss.origin.worker, std::memory_order_relaxed);
    shown.seq.store(loss.origin.seq, std::memory_order_relaxed);
    shown.since.store(loss.since, std::memory_order_release);  // last: whoever reads it finds the others
    return;
  }
}

std::optional<DeviceLoss> Board::device_loss(uint64_t since) const {
  const auto& shown = reinterpret_cast<const BoardHeader*>(memory_)->device_loss;
  const uint64_t latest = shown.since.load(std::memory_order_acquire);
  if (latest < since) return std::nullopt;
  return DeviceLoss{latest, {shown.worker.load(std::memory_order_relaxed), shown.seq.load(std::memory_order_relaxed)}};
}

void Board::mark_abandoned(std::string_view why) {
  uint32_t nobody = 0;
  if (header().abandoned.compare_exchange_strong(nobody, 1)) {
    const size_t n = std::min(why.size(), sizeof header().why - 1);
    std::copy_n(why.data(), n, header().why);
    header().abandoned.store(2, std::memory_order_seq_cst);
  }
  bell().wake();
}

void Board::throw_abandoned() {
  for (int i = 0; i < 1000 && header().abandoned.load(std::memory_order_acquire) == 1; ++i) yield_cpu();
  throw TransportError(fmt::format("the session is over: {}", header().why));
}

}  // namespace tutti::detail
