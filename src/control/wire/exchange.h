#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "tutti/value.h"

namespace tutti::detail {

/// Values that the controller and worker 0 pass each other inside their process: host arrays of copies, opaque objects.
class Exchange {
 public:
  uint64_t put(Value value) {
    std::lock_guard lock(mutex_);
    values_.emplace(++last_, std::move(value));
    return last_;
  }
  Value take(uint64_t token) {
    std::lock_guard lock(mutex_);
    auto node = values_.extract(token);
    return node.empty() ? Value() : std::move(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, Value> values_;
  uint64_t last_ = 0;
};

}  // namespace tutti::detail
