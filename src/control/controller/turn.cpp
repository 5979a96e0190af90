// The right to use a session, for one call.
#include <fmt/format.h>
#include <unistd.h>

#include "control/controller/controller.h"
#include "control/worker/worker.h"
#include "core/process.h"
#include "core/signals.h"

namespace tutti::detail {

Controller::Turn::Turn(Controller& controller, Purpose purpose) : lock_(controller.turn_, std::defer_lock) {
  if (auto* worker = Worker::current())
    throw UsageError(
        fmt::format("a worker function can't use a session (worker {}, command {}); return what the controller needs",
                    worker->id(), worker->seq()));
  if (process_generation() != controller.process_generation_)
    throw UsageError(fmt::format("the session belongs to process {}, this is {}, a fork of it; make a session here",
                                 controller.pid_, getpid()));
  if (purpose == Purpose::kClose) lock_.lock();  // another thread may still be in a call
  while (!lock_.owns_lock() && !lock_.try_lock()) {
    if (!controller.flushing_.load()) {
      if (lock_.try_lock()) break;  // the flusher has just ended
      if (!controller.flushing_.load())
        throw UsageError("two calls on one session overlap in time; issue from one thread at a time, or lock");
    }
    std::this_thread::yield();
  }
  if (!controller.lost_.empty()) throw TransportError(controller.lost_);
  if (controller.over_) throw UsageError("the session was shut down; make a new one");
  if (controller.last_seq_ && purpose == Purpose::kCall)
    throw UsageError("the session is half shut down: shutdown() ran into its limit; call it again");
  if (preemption_is_asked_for() && controller.preemption_hook_ && purpose != Purpose::kClose) {
    lock_.unlock();
    controller.preempt();
  }
}

}  // namespace tutti::detail
