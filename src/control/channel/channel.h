#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/doorbell.h"

namespace tutti::detail {

/// The controller's end of the control plane: commands to all workers, replies back. One owner at a time; the worker's
/// end is the ring of its node (control/segment/segment.h).
class Channel {
 public:
  static constexpr uint64_t kNone = UINT64_MAX;  // awaited: no command's end
  virtual ~Channel() = default;
  /// A command of that many bytes would be taken at once.
  virtual bool has_room(size_t bytes) = 0;
  /// Broadcasts one command, framed (control/segment/ring.h). Blocks only while the slowest worker is a ring behind, on other
  /// nodes 4 MiB; `relax` is called meanwhile.
  virtual void send(std::span<const std::byte> frame, const std::function<void()>& relax) = 0;
  /// A reply of any worker, if one is there. What a worker sent before it finished a command is there once finished()
  /// says so.
  virtual std::optional<std::vector<std::byte>> try_receive() = 0;
  /// All workers are done with the commands up to this seq.
  virtual uint64_t finished() = 0;
  /// Sleeps until ready() or the deadline; ready() is asked whenever something came: a reply, room, the end of `awaited` or of a
  /// later command. Runs commands of worker 0 meanwhile. False: the deadline came first.
  virtual bool wait(Clock::time_point deadline, uint64_t awaited, const std::function<bool()>& ready) = 0;
  /// @throws TransportError  a worker is gone, or the session is over
  virtual void check_alive() = 0;
};

}  // namespace tutti::detail
