#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace tutti::detail {

/// A mutex for what is held for some instructions, or tried only: a free one costs one atomic exchange.
class SpinLock {
 public:
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void lock() {
    for (int tries = 0; !try_lock(); ++tries)
      if (tries < 1000) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace tutti::detail
