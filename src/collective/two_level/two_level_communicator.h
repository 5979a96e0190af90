#pragma once

#include "collective/communicator.h"

namespace tutti {

/// Whether these members are on several nodes, as many on each, more than one.
bool has_two_levels(const DataPlane& plane, const std::vector<int>& members);
std::unique_ptr<Communicator> make_two_level_communicator(const DataPlane& plane, const std::vector<int>& members, CommKey key);

}  // namespace tutti
