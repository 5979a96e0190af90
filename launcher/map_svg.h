#pragma once

#include <string>
#include <vector>

#include "topology/plan.h"

namespace tutti::launcher {

/// The node as a picture: packages, NUMA nodes, cores, GPUs and network cards, coloured by rank.
std::string map_svg(const topology::Node& node, const std::vector<topology::Placement>& placements);

}  // namespace tutti::launcher
