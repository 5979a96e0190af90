#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "agreement/collective_id.h"
#include "collective/data_plane.h"
#include "tutti/device.h"

namespace tutti::detail {

/// What a communicator is made for, and with.
struct Making {
  const DataPlane& plane;
  const std::vector<int>& members;  ///< worker ids by rank
  CommKey key;
  Device device = {};  ///< of this member
  /// Passes bytes by the members' host memory, as many of each: `all` is by rank. Collective.
  std::function<void(std::span<const std::byte> mine, std::span<std::byte> all)> all_gather = {};
};

}  // namespace tutti::detail
