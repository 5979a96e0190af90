#pragma once

#include <array>
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
  /// Called after OwnArrivals::join(), which returns `key`. `line_is_enough`: for the others, of what there is to know of us.
  void agree(Arrival& mine, const ArrivalLine::Key& key, bool line_is_enough, std::vector<Arrival>& arrivals);

 private:
  struct Lines {  ///< of a member
    std::array<uint64_t, Board::kLines> versions;
    int line;  ///< its arrival
    ArrivalLine::Seen seen;
  };
  enum class Look { kNotThere, kJoined, kNotEnough };
  Look look(int32_t member, const CollectiveId& id, const ArrivalLine::Key& key, Lines& lines);
  bool agree_by_lines(const Arrival& mine, const ArrivalLine::Key& key);
  void read_arrivals(const Arrival& mine, bool by_lines, bool line_is_enough, std::vector<Arrival>& arrivals);
  void agree_slowly(Arrival& mine);
  std::optional<Deadlock> deadlock();

  Board& board_;
  WaitPolicy policy_;
  ControlPlane& plane_;
  OwnArrivals& own_;
  std::vector<Lines> lines_;  // of the members, by rank
};

}  // namespace tutti::detail
