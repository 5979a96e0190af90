#include "topology/node.h"

#include <algorithm>

namespace tutti::topology {

IndexSet cpus_of(const Node& node) {
  IndexSet all;
  for (const Core& core : node.cores) all.insert(core.cpus);
  return all;
}

int distance(const Node& node, const Core& core, const Device& device) {
  constexpr int kLocal = 10, kSamePackage = 20, kFar = 40;
  if (device.near.empty() || intersect(core.cpus, device.near)) return 0;
  int nearest = kFar;
  for (const Core& beside : node.cores) {
    if (!intersect(beside.cpus, device.near)) continue;
    const auto& latency = node.numa[static_cast<size_t>(core.numa)].latency;
    const int there = latency.empty() ? (beside.package == core.package ? kSamePackage : kFar) : latency[static_cast<size_t>(beside.numa)];
    nearest = std::min(nearest, std::max(there, kLocal + 1));
  }
  return nearest;
}

}  // namespace tutti::topology
