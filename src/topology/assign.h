// What becomes of the ranks of a machine when a job starts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "topology/launcher.h"
#include "topology/plan.h"

namespace tutti::topology {

/// TUTTI_BIND.
enum class Binding {
  kAuto,   ///< like kGpu, but no rank that its user has bound, and none to a single core
  kGpu,    ///< Policy::kGpu
  kCores,  ///< Policy::kCores
  kUser,   ///< CPUs stay as they are, a GPU is chosen
  kNone,   ///< nothing is looked at
};
Binding parse_binding(const std::string& text);  ///< "" is kAuto.  @throws SetUpError

/// What a rank knows of itself.
struct Self {
  IndexSet cpus;                                 ///< granted now
  std::map<std::string, std::string> variables;  ///< of the launcher, and what hides GPUs
};
Self self();
Environment value_in(const Self& self);  ///< which must live on

struct Assignment {
  bool is_bound = false;  ///< `cpus` and `memory` are to be set; else they stay
  IndexSet cpus;
  std::vector<int> memory;
  std::string gpu, gpu_pci, nic;   ///< empty: none
  std::vector<std::string> notes;  ///< what was not understood
  std::string why;                 ///< in words
};
std::vector<Assignment> assign(const Node& node, const std::vector<Self>& ranks, Binding binding);

/// This process's, once it is known. Set once, before there are threads that ask.
const Assignment& assignment();
void set_assignment(Assignment assignment);

}  // namespace tutti::topology
