#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/node/peer_memory.h"
#include "control/apart.h"
#include "control/segment.h"
#include "control/trace_file.h"
#include "control/worker0.h"
#include "control/worker_state.h"
#include "core/doorbell.h"

namespace tutti {

/// The controller's end of the control plane: commands to all workers, replies back. One owner at a time; the worker's
/// end is the ring of its node (control/segment.h). Back ends: thread, node (processes), mpi.
class Channel {
 public:
  static constexpr uint64_t kNone = UINT64_MAX;  // awaited: no command's end
  virtual ~Channel() = default;
  virtual const Layout& layout() const = 0;
  /// A command of that many bytes would be taken at once.
  virtual bool has_room(size_t bytes) = 0;
  /// Broadcasts one command, a frame. Blocks only while the slowest worker is a ring behind; `relax` is called meanwhile.
  virtual void send(std::span<const std::byte> frame, const std::function<void()>& relax) = 0;
  /// A reply of any worker, if one is there. What a worker sent before it finished a command is there once finished()
  /// says so.
  virtual std::optional<std::vector<std::byte>> try_receive() = 0;
  /// A copy of a tensor that a worker offers, or into one. `relax` is called meanwhile.  @throws SystemError, TransportError
  virtual Tensor take(int worker, const Offer& offer, const std::function<void()>& relax) = 0;
  virtual void give(int worker, const Offer& offer, const Tensor& from, const std::function<void()>& relax) = 0;
  /// The worker need not wait for more of that.
  virtual void settle(int worker, uint64_t seq) noexcept = 0;
  /// The lowest seq that all workers are done with.
  virtual uint64_t finished() = 0;
  /// Sleeps until ready() or the deadline; ready() is asked whenever something came: a reply, room, the end of `awaited` or of a
  /// later command.
  virtual bool wait(Clock::time_point deadline, uint64_t awaited, const std::function<bool()>& ready) = 0;
  /// @throws TransportError  a worker is gone
  virtual void check_alive() = 0;
  /// What every worker does; of nodes that don't answer in time: nothing. Any thread, until close().
  /// @param with_lines  asks interpreters, too, which line they run (source_line.h)
  virtual std::vector<WorkerState> look(Clock::time_point deadline, bool with_lines) = 0;
  /// Every node writes the files of its workers' flight recorders; other nodes' some time later. Any thread, until close().
  virtual void dump(const TraceDump& dump) = 0;
  /// The session is to end: workers that somebody has stopped go on.
  virtual void resume() noexcept {}
  /// After shut_down: waits for the workers to end (or, after a TransportError, ends them) and frees everything.
  virtual void close() noexcept = 0;
  /// A worker is stuck: ends the workers without waiting for them. Where that takes the process or the job, it ends with
  /// exit code 124.
  virtual void give_up(std::string_view why) noexcept = 0;
};

inline constexpr std::chrono::milliseconds kGrace{1000};  ///< for a stuck worker to end after all

/// What all back ends do on the controller's own node.
class SegmentChannel : public Channel {
 public:
  explicit SegmentChannel(std::unique_ptr<Segment> segment);
  const Layout& layout() const override { return segment_->layout(); }
  bool has_room(size_t bytes) override { return commands_.space(bytes) >= bytes; }
  void send(std::span<const std::byte> frame, const std::function<void()>& relax) override;
  std::optional<std::vector<std::byte>> try_receive() override;
  Tensor take(int worker, const Offer& offer, const std::function<void()>& relax) override;
  void give(int worker, const Offer& offer, const Tensor& from, const std::function<void()>& relax) override;
  void settle(int worker, uint64_t seq) noexcept override;
  uint64_t finished() override { return segment_->least_finished(); }
  bool wait(Clock::time_point deadline, uint64_t awaited, const std::function<bool()>& ready) override;
  void check_alive() override { segment_->check_not_abandoned(); }
  std::vector<WorkerState> look(Clock::time_point deadline, bool with_lines) override;
  void dump(const TraceDump& dump) override { write_traces(*segment_, dump); }

 protected:
  Segment& segment() { return *segment_; }

 private:
  virtual void receive_far(int worker, void* data, size_t size_bytes, const std::function<void()>& relax);
  virtual void send_far(int worker, const void* data, size_t size_bytes, const std::function<void()>& relax);
  std::unique_ptr<Segment> segment_;
  WaitPolicy policy_;
  RingWriter commands_;
  std::vector<RingReader> replies_;
  std::vector<FrameReader> frames_;
  size_t next_ = 0;
  PeerMemory peers_;

 protected:
  std::unique_ptr<Worker0> worker0_;  // joined by close()
};

}  // namespace tutti
