#pragma once

#include <string>
#include <vector>

#include "topology/plan.h"

namespace tutti::topology {

/// What the kernel grants the calling thread.
struct Granted {
  IndexSet cpus;
  std::vector<int> memory;  ///< NUMA nodes that pages come from first; empty: the ones beside the thread
};
Granted granted();

/// The calling thread, and what it starts from now on. Memory is preferred where it is planned, not forced: a full NUMA node is
/// no error. Returns what could not be done; nothing if all could.
/// @throws SystemError  the CPUs are refused
std::string bind(const Placement& placement);

/// How what is granted differs from what was planned; empty: it does not.
std::string verify(const Placement& placement);

}  // namespace tutti::topology
