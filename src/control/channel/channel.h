#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/watch/inspector.h"
#include "control/wire/apart.h"
#include "control/wire/layout.h"
#include "core/doorbell.h"

namespace tutti {

/// The controller's end of the control plane: commands to all workers, replies back. One owner at a time; the worker's
/// end is the ring of its node (control/channel/segment.h). Back ends: thread, node (processes), mpi.
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
  virtual Inspector& inspector() = 0;
  /// The session is to end: workers that somebody has stopped go on.
  virtual void resume() noexcept {}
  /// After shut_down: waits for the workers to end (or, after a TransportError, ends them) and frees everything.
  virtual void close() noexcept = 0;
  /// A worker is stuck: ends the workers without waiting for them. Where that takes the process or the job, it ends with
  /// exit code 124.
  virtual void give_up(std::string_view why) noexcept = 0;
};

inline constexpr std::chrono::milliseconds kGrace{1000};  ///< for a stuck worker to end after all

}  // namespace tutti
