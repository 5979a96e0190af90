// What a machine looks like to those who place ranks on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/index_set.h"

namespace tutti::topology {

struct Core {
  IndexSet cpus;    ///< its hardware threads that may be used
  int package = 0;  ///< logical index
  int numa = 0;     ///< into Node::numa
  int kind = 0;     ///< of hybrid processors: higher is faster
};

struct NumaNode {
  int os_index = 0;
  uint64_t memory_bytes = 0;  ///< that may be used
};

/// A GPU, a part of one (MIG, CPX), or a network card.
struct PciDevice {
  std::string name;  ///< of the operating system's device: cuda0, nvml0, rsmi3, mlx5_0; else the PCI id
  std::string pci;   ///< 0000:41:00.0; parts of one GPU share it
  std::string uuid;  ///< empty if not known
  std::string model;
  std::string vendor;                ///< nvidia, amd, intel; else empty
  bool is_guessed = false;           ///< from its PCI class: a driver may number others, or refuse it
  IndexSet near;                     ///< CPUs of the machine beside it, those that may not be used, too. Empty: not known
  std::vector<int> distances;        ///< from the cores of each of Node::numa, unless they are beside it
  std::vector<std::string> bridges;  ///< above it, from the root complex: those who share more of them are nearer to each other
};

struct Node {
  std::string host;
  std::vector<Core> cores;           ///< that may be used, by package, NUMA node and first CPU
  std::vector<NumaNode> numa;        ///< those of the cores, by number
  std::vector<PciDevice> gpus;       ///< by PCI id
  std::vector<PciDevice> idle_gpus;  ///< on the bus, without a driver to compute with
  std::vector<PciDevice> nics;       ///< that carry MPI's or NCCL's messages, by PCI id
  std::vector<std::string> notes;    ///< what was not understood
};

IndexSet cpus_of(const Node& node);

/// How far a core is from a device: 0 beside it; else the latency between their NUMA nodes as the firmware tells it (11 and
/// more), or, if it does not, 20 in its package, 40 in another.
int distance(const Core& core, const PciDevice& device);

}  // namespace tutti::topology
