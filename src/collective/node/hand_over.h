#pragma once

#include "agreement/arrival.h"
#include "collective/data_plane.h"

namespace tutti::detail {

/// The members of one collective wait for each other: what each did before, all see after.
class HandOver {
 public:
  HandOver(const NodePlane& node, int worker, const std::vector<Arrival>& members)
      : node_(node), worker_(worker), members_(members) {}

  void operator()() {
    done();
    for (const Arrival& member : members_) await(member, count_);
  }

  /// One more step of ours, which others may wait for.
  void done() {
    ++count_;
    auto& mine = node_.step(worker_);
    // what we have moved is seen by all who see the step; and the store comes before our look at the sleepers
    mine.store(mine.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    node_.bell->ring_ordered();
  }

  /// Until the member has done so many steps in this collective.
  void await(const Arrival& member, uint64_t count) {
    auto& step = node_.step(member.worker);
    const auto reached = [&, target = member.step + count] { return step.load(std::memory_order_seq_cst) >= target; };
    while (!wait_until(*node_.bell, node_.policy, Clock::now() + std::chrono::milliseconds(100), reached)) node_.check_alive();
  }

 private:
  const NodePlane& node_;
  int worker_;
  const std::vector<Arrival>& members_;
  uint64_t count_ = 0;
};

}  // namespace tutti::detail
