#pragma once

#include <bitset>
#include <map>
#include <memory>
#include <vector>

#include "collective/agreement.h"
#include "control/deadlock.h"
#include "control/fault.h"
#include "control/segment.h"

namespace tutti {

/// The verdict on a collective whose members are on several nodes, as the leaders hand it down.
struct RemoteVerdict {
  CollectiveId id;
  bool agreed = false;
  Disagreement why;
  std::vector<std::vector<int64_t>> counts;  ///< of the members, by rank
};
void encode(Writer& out, const RemoteVerdict& verdict);
RemoteVerdict decode_remote_verdict(Reader& in);

/// A worker's side of the agreement. Inside a node the members read each other's arrivals and the first to see them
/// complete advances the communicator's round (one atomic word): the verdict falls once. Across nodes the leaders do it.
class WorkerAgreement final : public Agreement {
 public:
  WorkerAgreement(Segment& segment, int worker, WaitPolicy policy, Recorder& recorder, const Faults& faults)
      : segment_(segment), worker_(worker), policy_(policy), recorder_(recorder), faults_(faults) {}
  void begin_command(uint64_t seq);

  CollectiveId next_id(CommKey key) override;
  std::vector<Arrival> agree(Arrival mine) override;
  void moves() override { faults_.at(Fault::Where::kTransfer, seq_); }
  void ends(bool well) override { recorder_.end_collective(well ? Record::State::kDone : Record::State::kFailed); }
  void decline(const CollectiveId& id) override;
  [[noreturn]] void broken(const std::string& why) override;
  SubSlot free_slot() override;
  void adopt(CommKey key, uint64_t round) override { rounds_[key] = round; }
  Origin here() const override { return {worker_, seq_}; }

 private:
  void write(Arrival& arrival);
  std::vector<Arrival> agree_on_node(const Arrival& mine);
  std::vector<Arrival> agree_across_nodes(const Arrival& mine);
  std::optional<Deadlock> deadlock();
  [[noreturn]] void leave(Arrival mine, const Disagreement& why);

  Segment& segment_;
  int worker_;
  WaitPolicy policy_;
  Recorder& recorder_;
  const Faults& faults_;
  uint64_t seq_ = 0;
  int next_slot_ = 0;
  std::shared_ptr<std::bitset<kSubSlots>> slots_ = std::make_shared<std::bitset<kSubSlots>>();  // taken in this command
  std::map<CommKey, uint32_t> indices_;  // in this command
  std::map<CommKey, uint64_t> rounds_;   // successes on a communicator so far
  std::vector<std::pair<CollectiveId, Origin>> left_;  // in this command
  std::vector<std::pair<int, uint64_t>> takers_;       // (worker, count) to wait for before the next arrival is written
};

/// What the node's shared memory says of its workers.
class SegmentView final : public MemberView {
 public:
  explicit SegmentView(Segment& segment) : segment_(segment) {}
  std::optional<Arrival> arrival(int worker) override;
  bool finished(int worker, uint64_t seq) override;
  std::optional<Origin> failure_at(int worker, uint64_t seq) override;

 private:
  Segment& segment_;
};

}  // namespace tutti
