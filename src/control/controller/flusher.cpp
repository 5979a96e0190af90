#include "control/controller/flusher.h"

#include <utility>

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kFlushAfter = 5ms;
constexpr int kQuiet = 3;  // looks without work, then it sleeps until it is woken

}  // namespace

Flusher::Flusher(std::function<bool()> has_work, std::function<void()> flush)
    : has_work_(std::move(has_work)), flush_(std::move(flush)) {
  thread_ = std::thread([this] { run(); });
}

void Flusher::wake() {
  if (!sleeps_.load()) return;
  std::lock_guard lock(mutex_);
  sleeps_.store(false);
  wakes_.notify_one();
}

void Flusher::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
    wakes_.notify_one();
  }
  thread_.join();
}

void Flusher::run() {
  std::unique_lock lock(mutex_);
  for (int quiet = kQuiet + 1; !ends_;) {
    if (quiet > kQuiet) {
      sleeps_.store(true);
      if (!has_work_()) wakes_.wait(lock, [&] { return ends_ || !sleeps_.load(); });
      sleeps_.store(false);
      quiet = 0;
    }
    wakes_.wait_for(lock, kFlushAfter, [&] { return ends_; });
    if (ends_) return;
    lock.unlock();
    const bool has_work = has_work_();
    quiet = has_work ? 0 : quiet + 1;
    if (has_work) flush_();
    lock.lock();
  }
}

}  // namespace tutti::detail
