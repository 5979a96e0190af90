// A plan in words and as JSON.
#pragma once

#include <string>
#include <vector>

#include "topology/plan.h"

namespace tutti::topology {

std::string to_table(const Node& node, const std::vector<Placement>& placements);  ///< a line a rank, for people
std::string to_json(const Node& node, const std::vector<Placement>& placements);   ///< "schema": "tutti.map/1", docs/formats.md

}  // namespace tutti::topology
