#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace tutti::detail {

using Clock = std::chrono::steady_clock;

/// Wakes sleepers of any process that maps it. Zeroed memory is a valid doorbell.
///
/// A notifier changes its condition, then calls ring(); a waiter counts itself as a sleeper, then looks at the condition
/// again. Both are read-modify-writes of `sleepers`, so one of the two sees the other: no wake-up is lost, and ringing
/// costs no system call while nobody sleeps.
struct Doorbell {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  void ring() {
    if (sleepers.fetch_add(0, std::memory_order_seq_cst) != 0) wake();
  }
  /// ring() without a fence, for what changes a million times a second: it may overlook a waiter that is just falling asleep,
  /// which therefore sleeps shortly for a while (kFirstSleep). Only reads the line that ring() takes for itself.
  void ring_ordered() {
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake();
  }
  void wake();
  void sleep(uint32_t seen, std::chrono::nanoseconds at_most);  ///< returns at once when value != seen
};

/// How long to stay awake before sleeping. When the node has more ranks than cores, spinning only keeps the others from
/// running: yield from the first moment.
struct WaitPolicy {
  std::chrono::nanoseconds spin{20'000};
  std::chrono::nanoseconds yield{200'000};
};
/// Of so many ranks on a machine, threads of leaders beside them, and cores that the ranks may use together: those that launchers
/// have bound to one core each do not take each other's.
WaitPolicy wait_policy(int ranks, int leaders, int cores);
WaitPolicy collective_wait_policy(int ranks, int cores);  ///< inside a collective, where all are awake
int allowed_cores();                                      ///< of this process

inline constexpr std::chrono::milliseconds kFirstSleep{1};

void pause_cpu();
void yield_cpu();

/// Waits until ready() or the deadline; returns the last answer of ready(). Calls before_sleep() before it sleeps.
template <class Ready, class BeforeSleep = void (*)()>
bool wait_until(
    Doorbell& bell, const WaitPolicy& policy, Clock::time_point deadline, Ready&& ready, BeforeSleep&& before_sleep = [] {}) {
  constexpr int kBeforeTheClock = 16;  // looks
  for (int i = policy.spin.count() > 0 ? 0 : kBeforeTheClock - 1; i < kBeforeTheClock; ++i)
    if (ready()) return true;
  const auto start = Clock::now();
  for (auto now = start; now - start < policy.spin; now = Clock::now())
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      if (i % 4 == 3) pause_cpu();  // it takes as long as a cache line's way
    }
  for (auto now = Clock::now(); now - start < policy.spin + policy.yield; now = Clock::now()) {
    yield_cpu();
    if (ready()) return true;
    if (now >= deadline) return false;
  }
  before_sleep();
  const struct Counted {
    explicit Counted(Doorbell& b) : bell(b) { bell.sleepers.fetch_add(1, std::memory_order_seq_cst); }
    ~Counted() { bell.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
    Doorbell& bell;
  } counted(bell);
  for (const auto counted_since = Clock::now();;) {
    const uint32_t seen = bell.value.load(std::memory_order_acquire);
    const auto now = Clock::now();
    if (ready()) return true;
    if (now >= deadline) return false;
    // a change that was on its way to memory when we were counted, unseen by its notifier, may have come only now: a sleep that
    // another notifier has cut short proves nothing (tests/model/ring.pml)
    const std::chrono::nanoseconds at_most =
        now - counted_since < kFirstSleep ? Clock::duration(kFirstSleep) : std::chrono::hours(1);
    bell.sleep(seen, std::min<std::chrono::nanoseconds>(at_most, deadline - now));
  }
}

}  // namespace tutti::detail
