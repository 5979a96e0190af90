#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "agreement/origin.h"
#include "core/shared_record.h"

namespace tutti::detail {

/// What a worker has failed with and not been acknowledged for, and, for its peers, at which commands it failed or
/// skipped and why (the last intervals, in shared memory).
class Failures {
 public:
  explicit Failures(SharedRecord record) : record_(record) {}
  bool skipping() const { return !active_.empty(); }
  Origin first() const { return active_.front(); }
  void add(Origin origin);  ///< once each
  void acknowledge(const std::vector<Origin>& origins) {
    if (!active_.empty()) forget(origins);
  }
  /// Before the worker says that it is done with command seq.
  void publish(uint64_t seq) {
    if (!active_.empty() || is_open_) write(seq);
  }

  static std::optional<Origin> at(const SharedRecord& record, uint64_t seq,
                                  const std::function<bool()>& gives_up);  ///< what the worker failed with at seq

 private:
  struct Interval {
    Origin origin;
    uint64_t first, last;  // last = UINT64_MAX: goes on
  };
  void forget(const std::vector<Origin>& origins);
  void write(uint64_t seq);
  static constexpr size_t kKept = 64;
  SharedRecord record_;
  std::vector<Origin> active_;
  std::deque<Interval> intervals_;
  bool is_open_ = false;  // the last interval goes on
};

}  // namespace tutti::detail
