#include "topology/node.h"

namespace tutti::topology {

IndexSet cpus_of(const Node& node) {
  IndexSet all;
  for (const Core& core : node.cores) all.insert(core.cpus);
  return all;
}

int distance(const Core& core, const PciDevice& device) {
  return device.near.empty() || intersect(core.cpus, device.near) ? 0 : device.distances[static_cast<size_t>(core.numa)];
}

}  // namespace tutti::topology
