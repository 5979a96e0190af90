#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "control/channel/channel.h"
#include "control/watch/inspector.h"
#include "control/wire/apart.h"
#include "control/wire/layout.h"

namespace tutti::detail {

/// Tensors that travel apart (control/wire/apart.h). `relax` is called in waits.
class Transfers {
 public:
  virtual ~Transfers() = default;
  /// A copy of the tensor that a worker offers.  @throws SystemError, TransportError, what `relax` throws
  virtual Tensor take(int worker, const Offer& offer, const std::function<void()>& relax) = 0;
  /// Copies `from` into the tensor that a worker offers.  @throws as take()
  virtual void give(int worker, const Offer& offer, const Tensor& from, const std::function<void()>& relax) = 0;
  /// The worker need not wait for more of command `seq`.
  virtual void settle(int worker, uint64_t seq) noexcept = 0;
};

/// The workers of a session, from their start to their end, and what the controller reaches them by. Back ends: thread,
/// node (processes), mpi.
class Workers {
 public:
  virtual ~Workers() = default;
  virtual const Layout& layout() const = 0;
  virtual Channel& channel() = 0;
  virtual Transfers& transfers() = 0;
  virtual Inspector& inspector() = 0;
  /// The session is to end: worker processes that somebody has stopped (SIGSTOP) go on.
  virtual void resume() noexcept {}
  /// After shut_down: waits for the workers to end (or, after a TransportError, ends them) and frees everything.
  virtual void close() noexcept = 0;
  /// A worker is stuck: ends the workers without waiting for them. Where that takes the process or the job, it ends with
  /// exit code 124.
  virtual void give_up(std::string_view why) noexcept = 0;
};

inline constexpr std::chrono::milliseconds kGrace{1000};  ///< for a stuck worker to end after all

}  // namespace tutti::detail
