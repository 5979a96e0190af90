#pragma once

#include <optional>
#include <vector>

#include "agreement/board.h"
#include "agreement/rule.h"

namespace tutti::detail {

/// What a board says of the node's workers: the latest arrival, or the one before it if that is the one asked for. Who
/// has arrived by a line has no other members than itself, until it has waited so long that it wrote its record.
class BoardView final : public MemberView {
 public:
  explicit BoardView(Board& board, std::optional<CollectiveId> wanted = {}) : board_(board), wanted_(wanted) {}
  std::optional<Arrival> arrival(int worker) override;
  bool finished(int worker, uint64_t seq) override;
  std::optional<Origin> failure_at(int worker, uint64_t seq) override;
  int line_of(int worker,
              ArrivalLine::Seen& seen);  ///< that the wanted arrival stands in, of one who has arrived.  @throws TransportError
  std::vector<CollectiveId> joined(int worker);  ///< what its lines say, of which it may have left some

 private:
  Board& board_;
  std::optional<CollectiveId> wanted_;
};

}  // namespace tutti::detail
