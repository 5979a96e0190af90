#pragma once

#include <string_view>
#include <vector>

#include "agreement/control_plane.h"
#include "control/segment/recorder.h"
#include "control/segment/segment.h"
#include "control/watch/worker_state.h"
#include "control/worker/fault.h"

namespace tutti::detail {

/// What a worker's agreement asks of it: records, faults for tests, looks at the node.
class WorkerPlane final : public ControlPlane {
 public:
  WorkerPlane(Segment& segment, Recorder& recorder, const Faults& faults)
      : segment_(segment), recorder_(recorder), faults_(faults) {}
  void next_collective(uint64_t seq) override { faults_.at(Fault::Where::kCollective, seq); }
  void begins(const CollectiveId& id, const Signature& signature) override { recorder_.begin_collective(id, signature); }
  void agreed() noexcept override { recorder_.agreed(); }
  void moves(uint64_t seq) override { faults_.at(Fault::Where::kTransfer, seq); }
  void ends(bool well) noexcept override { recorder_.end_collective(well ? Record::State::kDone : Record::State::kFailed); }
  void tell_leader() noexcept override { segment_.header().controller.ring(); }
  std::vector<MemberState> look() override {
    const auto states = look_at(segment_);
    return {states.begin(), states.end()};
  }
  void abandon(std::string_view why) override { segment_.abandon(why); }

 private:
  Segment& segment_;
  Recorder& recorder_;
  const Faults& faults_;
};

}  // namespace tutti::detail
