#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agreement/agreement.h"
#include "agreement/announcements.h"
#include "agreement/board.h"
#include "agreement/control_plane.h"
#include "agreement/node_protocol.h"
#include "agreement/own_arrivals.h"

namespace tutti::detail {

/// A worker's side of the agreement: on its node by the board, across nodes by the leaders' verdict.
class WorkerAgreement final : public Agreement {
 public:
  WorkerAgreement(Board& board, int worker, WaitPolicy policy, ControlPlane& plane)
      : board_(board),
        policy_(policy),
        plane_(plane),
        own_(board, worker, policy, plane),
        node_(board, policy, plane, own_),
        announcements_(
            board, worker, [this](const CollectiveId& id) { return has_taken(id); }, [this] { plane_.tell_leader(); }) {}
  WorkerAgreement(const WorkerAgreement&) = delete;
  WorkerAgreement& operator=(const WorkerAgreement&) = delete;
  void begin_command(uint64_t seq);

  CollectiveId next_id(CommKey key) override;
  const std::vector<Arrival>& agree(Arrival& mine) override;
  bool announce(const CollectiveId& id, const Signature& signature, const std::vector<int>& members) override;
  void restart_announcements(uint64_t since) override { announcements_.restart(since); }
  Announcements& announcements() { return announcements_; }
  void moves() override { plane_.moves(seq_); }
  void ends(bool well) override;
  void lost() override;
  void decline(const CollectiveId& id) override { own_.decline(id); }
  [[noreturn]] void broken(std::string_view what, std::string_view why) override;
  void tell_device_loss(const DeviceLoss& loss) override;
  Origin here() const override { return {own_.worker(), seq_}; }

 private:
  bool has_taken(const CollectiveId& id) const;

  Board& board_;
  WaitPolicy policy_;
  ControlPlane& plane_;
  OwnArrivals own_;
  NodeProtocol node_;
  Announcements announcements_;
  uint64_t seq_ = 0;
  std::map<CommKey, uint32_t> indices_;                   // in this command
  std::pair<const CommKey, uint32_t>* latest_ = nullptr;  // of them
  std::vector<Arrival> arrivals_;                         // what agree() returns
  bool hears_of_all_ = false;                             // of what was agreed on
  bool takes_at_end_ = false;                             // the arrivals' data is read until ends()
};

}  // namespace tutti::detail
