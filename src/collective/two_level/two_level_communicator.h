#pragma once

#include <memory>

#include "collective/data_plane.h"
#include "collective/host_communicator.h"

namespace tutti::detail {

/// Whether these members are on several nodes, as many on each, more than one.
bool has_two_levels(const DataPlane& plane, const std::vector<int>& members);
std::unique_ptr<HostCommunicator> make_two_level_communicator(const DataPlane& plane, const std::vector<int>& members,
                                                              CommKey key);

}  // namespace tutti::detail
