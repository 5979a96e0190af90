#include "control/segment/segment.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/env.h"
#include "core/process.h"

namespace tutti::detail {
namespace {

constexpr uint64_t kMagic = 0x746e656d67657336;  // changes with the layout

uint64_t pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

size_t align(size_t n) { return (n + 63) / 64 * 64; }

}  // namespace

Segment::Offsets Segment::offsets(const Layout& layout, size_t n) {
  Offsets o{};
  size_t at = align(sizeof(SegmentHeader));
  auto take = [&](size_t bytes) { return std::exchange(at, at + align(bytes)); };
  o.slots = take(n * sizeof(WorkerSlot));
  o.ring = take(kRingBytes);
  o.replies = take(n * kReplyBytes);
  o.board = take(Board::size_bytes(layout.num_workers, n));
  o.recorders = take(n * Recorder::kBytes);
  o.staging = take(n * kStagingBytes);
  o.end = at;
  return o;
}

size_t Segment::size_bytes(const Layout& layout, int node) { return offsets(layout, layout.workers_of(node).size()).end; }

Segment::Segment(Kind kind, const Layout& layout, int node)
    : layout_(layout),
      offsets_(offsets(layout, layout.workers_of(node).size())),
      memory_(kind == Kind::kShared ? SharedMemory::create(offsets_.end) : SharedMemory::create_private(offsets_.end)),
      board_(memory_.data() + offsets_.board, layout.num_workers, layout.workers_of(node)) {
  header().session = layout.session;
  std::copy_n(host_name().data(), std::min(host_name().size(), sizeof header().host - 1), header().host);
  const TickScale now;
  header().ticks = now.ticks();
  header().wall_ns = now.wall_ns();
  header().steady_ns = now.steady_ns();
  header().magic = kMagic;
}

Segment::Segment(SharedMemory memory, const Layout& layout, int node)
    : layout_(layout),
      offsets_(offsets(layout, layout.workers_of(node).size())),
      memory_(std::move(memory)),
      board_(memory_.data() + offsets_.board, layout.num_workers, layout.workers_of(node)) {
  if (memory_.size_bytes() != offsets_.end || header().magic != kMagic || header().session != layout.session)
    throw SystemError(fmt::format("shared memory of another session or version of tutti ({} bytes, expected {})",
                                  memory_.size_bytes(), offsets_.end));
}

WorkerSlot& Segment::slot(int worker) { return reinterpret_cast<WorkerSlot*>(memory_.data() + offsets_.slots)[index_of(worker)]; }

void Segment::set_pid(int worker) {
  slot(worker).pid_namespace.store(pid_namespace());
  slot(worker).pid.store(getpid());
}

std::optional<pid_t> Segment::pid_here(int worker) {
  const auto pid = static_cast<pid_t>(slot(worker).pid.load());
  if (pid == 0) return std::nullopt;
  return slot(worker).pid_namespace.load() == pid_namespace() ? pid : 0;
}

RingWriter Segment::commands() {
  std::vector<std::atomic<uint64_t>*> tails;
  for (int32_t worker : workers()) tails.push_back(&slot(worker).tail);
  return {{memory_.data() + offsets_.ring, kRingBytes}, &header().ring_head, std::move(tails)};
}
RingReader Segment::commands(int worker) {
  return {{memory_.data() + offsets_.ring, kRingBytes}, &header().ring_head, &slot(worker).tail};
}

RingWriter Segment::replies(int worker) { return {reply_memory(worker), &slot(worker).reply_head, {&slot(worker).reply_tail}}; }
RingReader Segment::reply_reader(int worker) {
  return {reply_memory(worker), &slot(worker).reply_head, &slot(worker).reply_tail};
}

std::span<std::byte> Segment::reply_memory(int worker) {
  return {memory_.data() + offsets_.replies + index_of(worker) * kReplyBytes, kReplyBytes};
}

Recorder Segment::recorder(int worker) {
  return Recorder(memory_.data() + offsets_.recorders + index_of(worker) * Recorder::kBytes);
}
std::byte* Segment::staging(int worker) { return memory_.data() + offsets_.staging + index_of(worker) * kStagingBytes; }

void Segment::abandon(std::string_view why) {
  board_.mark_abandoned(why);
  header().commands.wake();
  header().controller.wake();
  for (int32_t worker : workers()) slot(worker).reply_space.wake();
}

WaitPolicy Segment::wait_policy() const {
  return detail::wait_policy(layout_.machine_ranks, layout_.num_nodes() > 1 ? 1 : 0, layout_.machine_cores);
}

uint64_t Segment::least_finished() {
  uint64_t least = UINT64_MAX;
  for (int32_t worker : workers()) least = std::min(least, board_.member(worker).finished_seq.load(std::memory_order_seq_cst));
  return least;
}

}  // namespace tutti::detail
