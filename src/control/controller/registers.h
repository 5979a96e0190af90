#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "core/spin_lock.h"

namespace tutti::detail {

/// The register ids of a session: given out in commands, dropped by the last DRef, freed on the workers by a later command.
class Registers {
 public:
  void drop(int64_t id) {  // any thread
    std::lock_guard lock(mutex_);
    dropped_.push_back(id);
  }
  int64_t take() {  ///< an id that no command writes yet
    std::lock_guard lock(mutex_);
    return new_id();
  }
  bool any_dropped() {  // any thread
    std::lock_guard lock(mutex_);
    return !dropped_.empty();
  }
  /// For one command: what it frees, in `freed`, and the id of what it writes, if it writes something (else 0).
  int64_t next(std::vector<int64_t>& freed, bool writes) {
    std::lock_guard lock(mutex_);
    freed.clear();
    for (; !dropped_.empty() && freed.size() < kMostFreed; dropped_.pop_back()) {
      freed.push_back(dropped_.back());
      // the worker frees before it executes, so these ids can be given out again from now on
      reusable_.push_back(dropped_.back());
    }
    return writes ? new_id() : 0;
  }

 private:
  int64_t new_id() {
    if (reusable_.empty()) return next_++;
    const int64_t id = reusable_.back();
    reusable_.pop_back();
    return id;
  }

  static constexpr size_t kMostFreed = 1024;  // in one command
  SpinLock mutex_;
  int64_t next_ = 1;
  std::vector<int64_t> dropped_, reusable_;
};

}  // namespace tutti::detail
