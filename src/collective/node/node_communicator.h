#pragma once

#include <memory>

#include "collective/data_plane.h"
#include "collective/host_communicator.h"

namespace tutti::detail {

/// Threads or processes of one node: data travels with the arrivals, is moved by the members directly, or is staged.
std::unique_ptr<HostCommunicator> make_node_communicator(const DataPlane& plane, const std::vector<int>& members);

}  // namespace tutti::detail
