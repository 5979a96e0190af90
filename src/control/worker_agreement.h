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

/// A worker's side of the agreement. Inside a node the members read each other's arrivals and come to the same verdict each;
/// across nodes the leaders do it.
class WorkerAgreement final : public Agreement {
 public:
  WorkerAgreement(Segment& segment, int worker, WaitPolicy policy, Recorder& recorder, const Faults& faults)
      : segment_(segment),
        worker_(worker),
        policy_(policy),
        recorder_(recorder),
        faults_(faults),
        seen_taken_(static_cast<size_t>(segment.layout().num_workers)) {}
  void begin_command(uint64_t seq);

  CollectiveId next_id(CommKey key) override;
  const std::vector<Arrival>& agree(Arrival& mine) override;
  void moves() override { faults_.at(Fault::Where::kTransfer, seq_); }
  void ends(bool well) override;
  void lost() override;
  void decline(const CollectiveId& id) override;
  [[noreturn]] void broken(const std::string& why) override;
  SubSlot free_slot() override;
  void forget(CommKey first, CommKey end) override { indices_.erase(indices_.lower_bound(first), indices_.lower_bound(end)); }
  Origin here() const override { return {worker_, seq_}; }

 private:
  enum class Readers { kLine, kRecord, kLeader };  // kLine: members on this node, for whom the line says enough
  void write(Arrival& arrival, Readers readers);
  void write_record(const Arrival& arrival);
  void agree_on_node(Arrival& mine, bool line_is_enough);
  bool agree_by_lines(const Arrival& mine);
  void await_takers(int line);
  void take();
  void agree_slowly(Arrival& mine);
  void agree_across_nodes(Arrival& mine);
  std::optional<Deadlock> deadlock();
  [[noreturn]] void leave(Arrival& mine, const Disagreement& why);

  Segment& segment_;
  int worker_;
  WaitPolicy policy_;
  Recorder& recorder_;
  const Faults& faults_;
  uint64_t seq_ = 0;
  uint32_t sub_uses_ = 0;                                                                       // in this command
  std::shared_ptr<std::bitset<kSubSlots>> slots_ = std::make_shared<std::bitset<kSubSlots>>();  // taken in this command
  std::map<CommKey, uint32_t> indices_;                                                         // in this command
  std::vector<std::pair<CollectiveId, Origin>> left_;                                           // in this command
  uint64_t arrived_ = 0;  // arrivals written, in turns into the lines
  int line_ = 0;          // of the latest
  std::vector<std::pair<int, uint64_t>>
      takers_[Segment::kLines];       // (worker, count) to wait for before that line is written again
  std::vector<uint64_t> seen_taken_;  // by worker: what its arrivals have said of its count
  std::vector<Arrival> arrivals_;     // what agree() returns
  bool has_part_of_all_ = false;      // what all agreed on gives every member something of every other
  bool takes_at_end_ = false;         // the arrivals' data is read until ends()
};

/// What the node's shared memory says of its workers: the latest arrival, or the one before it if that is the one asked for. Who
/// has arrived by a line has no other members than itself, until it has waited so long that it wrote its record.
class SegmentView final : public MemberView {
 public:
  explicit SegmentView(Segment& segment, std::optional<CollectiveId> wanted = {}) : segment_(segment), wanted_(wanted) {}
  std::optional<Arrival> arrival(int worker) override;
  bool finished(int worker, uint64_t seq) override;
  std::optional<Origin> failure_at(int worker, uint64_t seq) override;
  int line_of(int worker,
              ArrivalLine::Seen& seen);  ///< that the wanted arrival stands in, of one who has arrived.  @throws TransportError
  std::vector<CollectiveId> joined(int worker);  ///< what its lines say, of which it may have left some

 private:
  Segment& segment_;
  std::optional<CollectiveId> wanted_;
};

}  // namespace tutti
