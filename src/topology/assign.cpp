#include "topology/assign.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/env.h"
#include "topology/bind.h"

namespace tutti::topology {
using namespace detail;
namespace {

Assignment& here() {
  static auto& assignment = *new Assignment;
  return assignment;
}

}  // namespace

Binding parse_binding(const std::string& text) {
  const std::map<std::string, Binding> known{{"", Binding::kAuto},
                                             {"gpu", Binding::kGpu},
                                             {"cores", Binding::kCores},
                                             {"user", Binding::kUser},
                                             {"none", Binding::kNone}};
  const auto found = known.find(text);
  if (found == known.end())
    throw SetUpError(fmt::format("TUTTI_BIND (or RunOptions::bind) is '{}': expected gpu, cores, user or none", text));
  return found->second;
}

Self self() {
  Self self{.cpus = granted().cpus, .variables = {}};
  const auto note = [&](const char* name) {
    if (auto value = this_process(name)) self.variables[name] = std::move(*value);
  };
  std::ranges::for_each(kPlaceVariables, note);
  std::ranges::for_each(kBindingVariables, note);
  return self;
}

Environment value_in(const Self& self) {
  return [&self](const char* name) {
    const auto found = self.variables.find(name);
    return found == self.variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::vector<Assignment> assign(const Node& whole, const std::vector<Self>& ranks, Binding binding) {
  std::vector<Assignment> assignments(ranks.size());
  if (binding == Binding::kNone) return assignments;
  Node node = whole;
  for (const Self& rank : ranks) add_parts(value_in(rank), node);
  std::vector<Limits> limits;
  std::vector<bool> keeps;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Environment environment = value_in(ranks[r]);
    keeps.push_back(binding == Binding::kUser || bound_by(environment, node, ranks[r].cpus) == BoundBy::kUser);
    limits.push_back(
        {keeps.back() ? ranks[r].cpus & cpus_of(node) : IndexSet(), visible_gpus(environment, node, assignments[r].notes)});
    for (const std::string& note : assignments[r].notes) assignments[r].why += note + "; ";
  }
  const auto placements = plan(node, limits, binding == Binding::kCores ? Policy::kCores : Policy::kGpu);
  const bool is_tight = binding == Binding::kAuto && std::ranges::any_of(placements, [&](const Placement& p) {
                          return p.shares_cores || std::ranges::count_if(node.cores, [&](const Core& core) {
                                                     return intersect(core.cpus, p.cpus);
                                                   }) < 2;
                        });
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Placement& p = placements[r];
    Assignment& assigned = assignments[r];
    assigned.is_bound = !keeps[r] && !is_tight;
    assigned.cpus = assigned.is_bound ? p.cpus : ranks[r].cpus;
    assigned.memory = p.memory;
    if (p.gpu >= 0)
      assigned.gpu = node.gpus[static_cast<size_t>(p.gpu)].name, assigned.gpu_pci = node.gpus[static_cast<size_t>(p.gpu)].pci;
    if (p.nic >= 0) assigned.nic = node.nics[static_cast<size_t>(p.nic)].name;
    assigned.why += assigned.is_bound ? "bound"
                    : keeps[r]        ? "CPUs left as the user has bound them"
                                      : "CPUs left alone: fewer than two cores a rank";
  }
  return assignments;
}

const Assignment& assignment() { return here(); }
void set_assignment(Assignment assignment) { here() = std::move(assignment); }

}  // namespace tutti::topology
