#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace tutti::detail {

/// A thread that can be waited for with a limit. Joined by its destructor.
class WorkerThread {
 public:
  WorkerThread() = default;
  template <class F>
  explicit WorkerThread(F serve)
      : ended_(std::make_shared<std::atomic<bool>>(false)), thread_([serve = std::move(serve), ended = ended_]() mutable {
          const struct AtEnd {  // also when a function ends the thread
            std::atomic<bool>& ended;
            ~AtEnd() { ended.store(true); }
          } at_end{*ended};
          serve();
        }) {}
  bool joinable() const { return thread_.joinable(); }
  void join() { thread_.join(); }
  bool ends_within(std::chrono::milliseconds limit) const {
    for (const auto start = std::chrono::steady_clock::now(); thread_.joinable() && !ended_->load();) {
      if (std::chrono::steady_clock::now() - start > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  std::shared_ptr<std::atomic<bool>> ended_;
  std::jthread thread_;
};

}  // namespace tutti::detail
