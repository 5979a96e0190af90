#pragma once

#include "collective/communicator.h"

namespace tutti {

/// Threads or processes of one node: data travels with the arrivals, is moved by the members directly, or is staged.
std::unique_ptr<Communicator> make_node_communicator(const DataPlane& plane, const std::vector<int>& members, CommKey key);

}  // namespace tutti
