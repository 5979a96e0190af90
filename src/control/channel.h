#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/segment.h"
#include "core/doorbell.h"

namespace tutti {

/// The controller's end of the control plane: commands to all workers, replies back. One owner at a time; the worker's
/// end is the ring of its node (control/segment.h). Back ends: thread, node (processes), mpi.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual const Layout& layout() const = 0;
  /// Broadcasts one command. Blocks only while the slowest worker is a ring behind; `relax` is called meanwhile.
  virtual void send(std::span<const std::byte> command, const std::function<void()>& relax) = 0;
  /// A reply of any worker, if one is there. What a worker sent before it finished a command is there once finished()
  /// says so.
  virtual std::optional<std::vector<std::byte>> try_receive() = 0;
  /// The lowest seq that all workers are done with.
  virtual uint64_t finished() = 0;
  /// Sleeps until ready() or the deadline; ready() is asked whenever something came.
  virtual bool wait(Clock::time_point deadline, const std::function<bool()>& ready) = 0;
  /// @throws TransportError  a worker is gone
  virtual void check_alive() = 0;
  /// After shut_down: waits for the workers to end (or, after a TransportError, ends them) and frees everything.
  virtual void close() noexcept = 0;
};

/// What all back ends do on the controller's own node.
class SegmentChannel : public Channel {
 public:
  explicit SegmentChannel(std::unique_ptr<Segment> segment);
  const Layout& layout() const override { return segment_->layout(); }
  void send(std::span<const std::byte> command, const std::function<void()>& relax) override;
  std::optional<std::vector<std::byte>> try_receive() override;
  uint64_t finished() override { return segment_->least_finished(); }
  bool wait(Clock::time_point deadline, const std::function<bool()>& ready) override;
  void check_alive() override { segment_->check_not_abandoned(); }

 protected:
  Segment& segment() { return *segment_; }

 private:
  std::unique_ptr<Segment> segment_;
  WaitPolicy policy_;
  ByteRing commands_;
  std::vector<ByteRing> replies_;
  std::vector<FrameReader> frames_;
  size_t next_ = 0;
};

}  // namespace tutti
