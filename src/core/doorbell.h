#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tutti {

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
  /// ring(), when both the change and every look at it are seq_cst: only reads the line that ring() takes for itself.
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
WaitPolicy wait_policy(int ranks_on_this_machine);

void pause_cpu();
void yield_cpu();

/// Waits until ready() or the deadline; returns the last answer of ready().
template <class Ready>
bool wait_until(Doorbell& bell, const WaitPolicy& policy, Clock::time_point deadline, Ready&& ready) {
  if (ready()) return true;
  const auto start = Clock::now();
  for (auto now = start; now - start < policy.spin; now = Clock::now())
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause_cpu();
    }
  for (auto now = Clock::now(); now - start < policy.spin + policy.yield; now = Clock::now()) {
    yield_cpu();
    if (ready()) return true;
    if (now >= deadline) return false;
  }
  for (;;) {
    const uint32_t seen = bell.value.load(std::memory_order_acquire);
    bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
    bool is_ready = ready();
    const auto now = Clock::now();
    if (!is_ready && now < deadline) bell.sleep(seen, deadline - now);
    bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (is_ready || ready()) return true;
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace tutti
