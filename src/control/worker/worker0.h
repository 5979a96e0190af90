#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "control/worker/worker.h"
#include "control/worker/worker_thread.h"
#include "core/doorbell.h"
#include "core/spin_lock.h"

namespace tutti::detail {

/// The controller's own worker. A controller that waits runs those of its commands that promise to be short itself; its thread
/// runs all others, and these too when the controller does not come to it: it looks now and then while commands come, and sleeps
/// when none do.
class Worker0 {
 public:
  /// `ended` runs on the thread after the last command.
  Worker0(Segment& segment, Exchange* exchange, void* mpi_parent, std::function<void()> ended = {});

  void issued();  ///< commands are there
  /// The controller waits, as long as this lives. `for_results`: not just for room.
  class Waiting {
   public:
    Waiting(Worker0& worker, bool for_results) : waits_(worker.waits_), step_(for_results ? 1 : 0) { count(); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() { count(); }

   private:
    void count() {
      waits_.store(waits_.load(std::memory_order_relaxed) + step_, std::memory_order_relaxed);
    }  // one thread at a time
    std::atomic<uint64_t>& waits_;
    uint64_t step_;
  };
  enum class Left { kNothing, kMore, kTheThread };  ///< kTheThread: what its own thread is to run, or runs
  Left help();  ///< of the controller's thread, while it waits: runs for a while what may run anywhere
  std::optional<std::vector<std::byte>> pop_reply();  ///< of what help() ran

  bool joinable() const { return thread_.joinable(); }
  /// Both make its thread look whether the session is abandoned.
  void join() { wake(), thread_.join(); }
  bool ends_within(std::chrono::milliseconds limit) { return wake(), thread_.ends_within(limit); }

 private:
  enum class State : uint32_t { kAwake, kNaps, kSleeps };
  void serve();
  bool work(Clock::time_point& last_own);
  void rest(State state, std::chrono::nanoseconds at_most);
  void wake() {
    if (state_.exchange(State::kAwake) != State::kAwake) bell_.wake();
  }

  Segment& segment_;
  WaitPolicy policy_;
  SpinLock turn_;  // of whoever runs the worker
  std::optional<Worker> worker_;
  std::deque<std::vector<std::byte>> replies_;
  Doorbell bell_;
  std::atomic<State> state_{State::kAwake};
  std::atomic<uint64_t> waits_{0};  // begun and ended: odd while the controller waits
  std::function<void()> ended_;
  WorkerThread thread_;
};

}  // namespace tutti::detail
