#pragma once

#include <vector>

#include "agreement/board.h"
#include "agreement/own_arrivals.h"

namespace tutti::detail {

/// Members on several nodes wait for the verdict that the leaders hand down. Called after OwnArrivals::join().
void agree_across_nodes(Board& board, const WaitPolicy& policy, OwnArrivals& own, Arrival& mine, std::vector<Arrival>& arrivals);

}  // namespace tutti::detail
