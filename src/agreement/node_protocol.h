#pragma once

#include <optional>
#include <vector>

#include "agreement/board.h"
#include "agreement/control_plane.h"
#include "agreement/deadlock.h"
#include "agreement/own_arrivals.h"

namespace tutti::detail {

/// Members on one node read each other's arrivals and come to the same verdict each. tests/model/agreement.pml is its model.
class NodeProtocol {
 public:
  NodeProtocol(Board& board, WaitPolicy policy, ControlPlane& plane, OwnArrivals& own)
      : board_(board), policy_(policy), plane_(plane), own_(own) {}
  /// Called after OwnArrivals::join(). `line_is_enough`: for the others, of what there is to know of us.
  void agree(Arrival& mine, bool line_is_enough, std::vector<Arrival>& arrivals);

 private:
  bool agree_by_lines(const Arrival& mine);
  void agree_slowly(Arrival& mine);
  std::optional<Deadlock> deadlock();

  Board& board_;
  WaitPolicy policy_;
  ControlPlane& plane_;
  OwnArrivals& own_;
};

}  // namespace tutti::detail
