// Who gets what on a node. A pure function: equal inputs have equal plans, on every rank.
#pragma once

#include <string>
#include <vector>

#include "topology/node.h"

namespace tutti::topology {

/// What a rank may use.
struct Limits {
  IndexSet cpus;          ///< empty: all of the node's
  std::vector<int> gpus;  ///< positions in Node::gpus
  friend bool operator==(const Limits&, const Limits&) = default;
};

struct Placement {
  int gpu = -1;               ///< position in Node::gpus; -1: none
  int nic = -1;               ///< position in Node::nics: the nearest to the GPU, or to the cores
  IndexSet cpus;              ///< whole cores
  std::vector<int> memory;    ///< numbers of the NUMA nodes that these cores are on, as far as their memory may be used
  int distance = 0;           ///< from the cores to the GPU
  bool shares_cores = false;  ///< with other ranks: there are more ranks than cores
};

enum class Policy {
  kGpu,    ///< GPUs first: cores as near to them as can be. Without GPUs like kCores
  kCores,  ///< all cores in equal shares first, then the nearest GPU
};

/// Places ranks 0 to ranks.size() - 1 of a node.
/// - Who sees a GPU gets one; the GPUs' numbers of ranks differ by at most one, as far as what the ranks see allows.
/// - Then the sum of the ranks' distances from their nearest core to their GPU is as small as can be (kGpu).
/// - Ranks get disjoint sets of whole cores, all at that distance, as equal as can be; more ranks than cores share them all.
/// - Ranks whose `cpus` differ have been bound by somebody: they keep them, and only get a GPU.
/// @throws UsageError  no ranks; cpus or gpus that the node has not
std::vector<Placement> plan(const Node& node, const std::vector<Limits>& ranks, Policy policy = Policy::kGpu);
std::vector<Placement> plan(const Node& node, int ranks, Policy policy = Policy::kGpu);  ///< who all may use everything

}  // namespace tutti::topology
