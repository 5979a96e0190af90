#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tutti::detail {

/// Freed registers ride in the next command. When none comes, this thread has one sent. It sleeps while nothing is freed.
class Flusher {
 public:
  /// Both on its thread. `has_work`: something is freed; `flush`: has it sent, if that can be now.
  Flusher(std::function<bool()> has_work, std::function<void()> flush);
  ~Flusher() { stop(); }
  void wake();  ///< something was freed; any thread
  void stop();

 private:
  void run();
  std::function<bool()> has_work_;
  std::function<void()> flush_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  std::atomic<bool> sleeps_{false};
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tutti::detail
