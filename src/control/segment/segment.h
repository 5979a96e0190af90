// What the ranks of one node share: the command ring, the board of their agreements, and for each worker its replies, its
// state, its staging memory. A stuck or dead worker's part can still be read.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agreement/board.h"
#include "control/segment/recorder.h"
#include "control/segment/ring.h"
#include "control/wire/layout.h"
#include "core/doorbell.h"
#include "core/interpreter.h"
#include "core/shared_memory.h"

namespace tutti::detail {

/// Where a worker is in a recorded program. It writes for each command, in no order: readers may get a mixture.
struct ReplayView {
  using Name = std::atomic<uint64_t>[4];  // core/function_parts.h
  Name program, function;
  std::atomic<uint64_t> begin;      // in ticks
  std::atomic<uint64_t> iteration;  // from 1
  std::atomic<uint32_t> step;       // from 1; 0: in no program
  void name(Name& which, const ShortName& name) {
    for (size_t i = 0; i < name.words.size(); ++i) which[i].store(name.words[i], std::memory_order_relaxed);
  }
};

struct WorkerSlot {
  alignas(64) std::atomic<uint64_t> tail;  // of the command ring
  alignas(64) std::atomic<uint64_t> current_seq;
  std::atomic<int64_t> pid;
  std::atomic<uint64_t> pid_namespace;    // in which that number means something
  std::atomic<int64_t> thread;            // that runs its commands
  std::atomic<StackSignal> stack_signal;  // of its process
  std::atomic<uint32_t> has_left;         // the session has ended for it: its process may go
  alignas(64) std::atomic<uint64_t> reply_head, reply_tail;
  Doorbell reply_space;
  std::atomic<uint64_t> staging_turns;  // of a tensor that travels through the staging memory (control/transfer/staged_tensor.h)
  std::atomic<uint64_t> moved_seq;      // the controller has moved the tensors that travel apart from this command
  alignas(64) ReplayView replay;
};

struct SegmentHeader {
  uint64_t magic, session;
  char host[64];
  uint64_t ticks;  // when the segment was made, by all clocks
  int64_t wall_ns, steady_ns;
  alignas(64) std::atomic<uint64_t> ring_head;
  alignas(64) Doorbell commands;    // rung when commands are there; workers sleep on it
  std::atomic<uint32_t> nappers;    // workers that sleep for a moment in a flood of commands, uncounted by it
  alignas(64) Doorbell controller;  // rung on space, replies, progress, arrivals; controller or leader sleeps on it
  std::atomic<uint64_t> awaited;    // the first command whose end is progress to it
};

class Segment {
 public:
  enum class Kind { kPrivate, kShared };
  Segment(Kind kind, const Layout& layout, int node);
  Segment(SharedMemory memory, const Layout& layout, int node);  ///< a peer's.  @throws SystemError  not that session's

  static size_t size_bytes(const Layout& layout, int node);

  const Layout& layout() const { return layout_; }
  int fd() const { return memory_.fd(); }
  Board& board() { return board_; }
  bool has(int worker) const { return board_.has(worker); }
  const std::vector<int32_t>& workers() const { return board_.workers(); }  ///< of this node
  WaitPolicy wait_policy() const;  ///< of its ranks, for commands and for what becomes of them

  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(memory_.data()); }
  WorkerSlot& slot(int worker);
  void set_pid(int worker);                   ///< this process is the worker's
  std::optional<pid_t> pid_here(int worker);  ///< as this process may use it; 0: of another namespace; nothing: not joined yet
  RingWriter commands();                      ///< for all workers of the node
  RingReader commands(int worker);
  RingWriter replies(int worker);
  RingReader reply_reader(int worker);
  Recorder recorder(int worker);
  TickScale tick_scale() { return {header().ticks, header().wall_ns, header().steady_ns}; }
  std::byte* staging(int worker);

  uint64_t least_finished();
  void abandon(std::string_view why);  ///< the first one's words stay; wakes all
  bool abandoned() { return board_.abandoned(); }
  void check_not_abandoned() { board_.check_not_abandoned(); }  ///< @throws TransportError

  static constexpr size_t kRingBytes = size_t{1} << 20, kReplyBytes = size_t{1} << 18, kStagingBytes = size_t{1} << 18;

 private:
  struct Offsets {
    size_t slots, ring, replies, board, recorders, staging, end;
  };
  std::span<std::byte> reply_memory(int worker);
  static Offsets offsets(const Layout& layout, size_t workers_here);
  size_t index_of(int worker) const { return board_.index_of(worker); }

  Layout layout_;
  Offsets offsets_;
  SharedMemory memory_;
  Board board_;
};

}  // namespace tutti::detail
