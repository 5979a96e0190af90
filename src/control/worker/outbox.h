#pragma once

#include <deque>
#include <vector>

#include "control/segment/segment.h"
#include "control/wire/command.h"

namespace tutti::detail {

/// A worker's replies to the controller, by its node's memory.
class Outbox {
 public:
  Outbox(Segment& segment, int worker) : segment_(segment), worker_(worker), policy_(segment.wait_policy()) {}
  void put(const Reply& reply);  ///< waits for room, as long as the session is there
  /// Of a worker that runs on the controller's own thread: into these; null: the ring again.
  void divert(std::deque<std::vector<std::byte>>* answers) { answers_ = answers; }

 private:
  Segment& segment_;
  int worker_;
  WaitPolicy policy_;
  std::deque<std::vector<std::byte>>* answers_ = nullptr;
};

}  // namespace tutti::detail
