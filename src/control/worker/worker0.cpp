#include "control/worker/worker0.h"

#include <sys/prctl.h>

#include <algorithm>
#include <mutex>

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kLookNap = 200us;  // between looks for commands that the controller leaves lying
constexpr auto kActive = 2ms;     // after the last command
constexpr auto kSleep = 1s;       // between looks whether the session is abandoned
constexpr auto kHelp = 20us;      // then the controller looks at what it waits for
constexpr int kMostAtOnce = 64;   // then the controller may have a turn

}  // namespace

Worker0::Worker0(Segment& segment, Exchange* exchange, void* mpi_parent, std::function<void()> ended)
    : segment_(segment), policy_(segment.wait_policy()), ended_(std::move(ended)) {
  worker_.emplace(segment, 0, exchange, mpi_parent);
  thread_ = WorkerThread([this] {
    serve();
    if (ended_) ended_();
  });
}

/// Without a fence: a worker 0 that is just going to sleep may be overlooked, and sees the command when its first sleep, a short
/// one, is over (rest(), tests/model/worker0.pml).
void Worker0::issued() {
  if (state_.load(std::memory_order_seq_cst) == State::kSleeps) wake();
}

Worker0::Left Worker0::help() {
  const std::unique_lock lock(turn_, std::try_to_lock);
  if (!lock.owns_lock() || !worker_) return Left::kTheThread;
  const struct Answers {
    Worker& worker;
    ~Answers() { worker.answer_into(nullptr); }
  } answers{*worker_};
  worker_->answer_into(&replies_);
  worker_->runs_here();
  try {
    const auto start = Clock::now();
    for (int i = 1; !segment_.abandoned() && worker_->fetch(); ++i) {
      if (!worker_->may_run_anywhere()) {
        wake();
        return Left::kTheThread;
      }
      worker_->run_fetched(i > 1);
      if (i % 8 == 0 && Clock::now() - start > kHelp) return Left::kMore;
    }
  } catch (const std::exception& error) {
    Worker::give_up(segment_, 0, error);
  }
  return Left::kNothing;
}

std::optional<std::vector<std::byte>> Worker0::pop_reply() {
  if (replies_.empty()) return std::nullopt;
  auto reply = std::move(replies_.front());
  replies_.pop_front();
  return reply;
}

void Worker0::serve() {
  ::prctl(PR_SET_NAME, "tutti-worker0");
  ::prctl(PR_SET_TIMERSLACK, 1000UL);
  auto last_own = Clock::now(), last_command = last_own, last_wait = last_own;
  for (uint64_t seq = 0, seen_waits = 0;;) {
    if (!work(last_own)) return;
    const auto now = Clock::now();
    if (const uint64_t current = segment_.slot(0).current_seq.load(std::memory_order_relaxed); current != seq) {
      seq = current;
      last_command = now;
    }
    if (const uint64_t waits = waits_.load(std::memory_order_relaxed); waits != seen_waits || waits % 2 != 0) {
      seen_waits = waits;
      last_wait = now;
    }
    // somebody waits for what only this thread may run: it pays to be awake for the next
    if (now - last_own < policy_.yield && now - last_wait < policy_.yield) yield_cpu();
    else if (now - last_command < kActive) rest(State::kNaps, kLookNap);
    else rest(State::kSleeps, kSleep);
  }
}

/// Runs what is there. False: the session is over.
bool Worker0::work(Clock::time_point& last_own) {
  const std::lock_guard lock(turn_);
  bool at_once = false, has_own = false, goes_on = !segment_.abandoned();
  worker_->runs_here();
  try {
    for (int i = 0; i < kMostAtOnce && goes_on && worker_->fetch(); ++i) {
      const bool is_own = !worker_->may_run_anywhere();
      goes_on = worker_->run_fetched(at_once) && !segment_.abandoned();
      has_own |= is_own;
      at_once = true;
    }
    if (has_own) last_own = Clock::now();
  } catch (const std::exception& error) {
    Worker::give_up(segment_, 0, error);
    goes_on = false;
  }
  if (!goes_on) worker_.reset();
  return goes_on;
}

void Worker0::rest(State state, std::chrono::nanoseconds at_most) {
  const uint32_t seen = bell_.value.load(std::memory_order_acquire);
  state_.store(state, std::memory_order_seq_cst);
  const auto may_sleep = [this] {  // nobody else runs the worker, and nothing is there
    const std::unique_lock lock(turn_, std::try_to_lock);
    return lock.owns_lock() && !segment_.abandoned() && !worker_->is_due();
  };
  // issued() has no fence: a command that was on its way to memory when the state changed comes while the first sleep lasts
  if (may_sleep()) bell_.sleep(seen, std::min<std::chrono::nanoseconds>(at_most, kFirstSleep));
  if (at_most > kFirstSleep && may_sleep()) bell_.sleep(seen, at_most);
  state_.store(State::kAwake, std::memory_order_seq_cst);
}

}  // namespace tutti::detail
