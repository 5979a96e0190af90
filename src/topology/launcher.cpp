#include "topology/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>

#include "core/env.h"
#include "core/settings.h"
#include "topology/driver.h"

namespace tutti::topology {
using namespace detail;
namespace {

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int> number_of(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const auto value = number(*text);
  if (!value || *value < 0) throw SetUpError(fmt::format("{}={}: expected a number", name, *text));
  return value;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> entries;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    std::string entry = text.substr(at, end - at);
    entry.erase(0, entry.find_first_not_of(' '));
    entry.erase(entry.find_last_not_of(' ') + 1);
    entries.push_back(std::move(entry));
    at = end + 1;
  }
  return entries;
}

/// "4(x2),3": tasks of this step's nodes, one after another.
std::optional<int> tasks_on_node(const std::string& text, int node) {
  for (const std::string& entry : split(text)) {
    const size_t times = entry.find("(x");
    const auto tasks = number(entry.substr(0, times));
    const auto nodes = times == std::string::npos ? std::optional(1) : number(entry.substr(times + 2, entry.size() - times - 3));
    if (!tasks || !nodes) return std::nullopt;
    if (node < *nodes) return tasks;
    node -= *nodes;
  }
  return std::nullopt;
}

constexpr std::string_view kMigPart = "MIG-";
bool is_part(const PciDevice& gpu) { return gpu.uuid.starts_with(kMigPart); }

/// "MIG-GPU-<UUID of the GPU>/1/0" tells whose part it is; of "MIG-<UUID of its own>" the driver does (kWholes), or there is but
/// one GPU.
std::optional<int> whole_of_part(const Environment& environment, std::string_view part, const Node& node,
                                 const std::vector<int>& candidates) {
  for (const std::string& known : split(environment(kWholes).value_or("")))
    if (const size_t equals = known.find('='); equals != std::string::npos && known.substr(0, equals) == part)
      for (const int candidate : candidates)
        if (node.gpus[static_cast<size_t>(candidate)].pci == known.substr(equals + 1)) return candidate;
  part.remove_prefix(kMigPart.size());
  const std::string_view gpu = part.substr(0, part.find('/'));
  if (gpu.starts_with("GPU-"))
    for (const int candidate : candidates)
      if (node.gpus[static_cast<size_t>(candidate)].uuid == gpu) return candidate;
  return !gpu.starts_with("GPU-") && candidates.size() == 1 ? std::optional(candidates[0]) : std::nullopt;
}

/// Of `candidates`, those that the variable's value leaves.
std::vector<int> choose(const Environment& environment, const std::string& name, const std::string& value, const Node& node,
                        const std::vector<int>& candidates, std::vector<std::string>& notes) {
  std::vector<int> chosen;
  for (const std::string& entry : split(value)) {
    std::optional<int> found;
    if (const auto index = number(entry)) {
      if (*index >= 0 && static_cast<size_t>(*index) < candidates.size()) found = candidates[static_cast<size_t>(*index)];
    } else if (entry.starts_with(kMigPart)) {
      const auto part = std::ranges::find(node.gpus, entry, &PciDevice::uuid);
      found = part != node.gpus.end() ? std::optional(static_cast<int>(part - node.gpus.begin()))
                                      : whole_of_part(environment, entry, node, candidates);
      if (!found)
        notes.push_back(
            fmt::format("{}: '{}' does not tell which GPU it is a part of; nothing is placed beside it", name, entry));
    } else if (!entry.empty()) {
      for (const int gpu : candidates)
        if (!found && node.gpus[static_cast<size_t>(gpu)].uuid.starts_with(entry)) found = gpu;
      if (!found && entry != "NoDevFiles")
        notes.push_back(
            fmt::format("{}: no GPU '{}' among those that hwloc found; it and what follows is left out", name, entry));
    }
    if (!found) break;
    if (!std::ranges::count(chosen, *found)) chosen.push_back(*found);
  }
  return chosen;
}

/// Positions of a vendor's GPUs that this process may open, which its drivers number.
std::vector<int> numbered(const Environment& environment, const Node& node,
                          const std::function<bool(const PciDevice&)>& is_meant) {
  const auto reachable = environment(kReachableGpus);
  const auto ids = split(reachable.value_or(""));
  std::vector<int> positions;
  for (size_t g = 0; g < node.gpus.size(); ++g) {
    const PciDevice& gpu = node.gpus[g];
    if (is_meant(gpu) && !is_part(gpu) && !(reachable && gpu.vendor == "nvidia" && !std::ranges::count(ids, gpu.pci)))
      positions.push_back(static_cast<int>(g));
  }
  return positions;
}

/// Of the parts that CUDA_VISIBLE_DEVICES names.
std::optional<std::string> wholes() {
  std::vector<std::string> parts;
  for (const std::string& entry : split(env_string("CUDA_VISIBLE_DEVICES").value_or("")))
    if (entry.starts_with(kMigPart) && !entry.starts_with("MIG-GPU-")) parts.push_back(entry);
  if (parts.empty()) return std::nullopt;
  std::string text;
  for (const auto& [part, pci] : wholes_of_parts(parts)) text += fmt::format("{}{}={}", text.empty() ? "" : ",", part, pci);
  return text;
}

std::optional<std::string> reachable_gpus() {
  if (!settings().topology.empty()) return std::nullopt;  // another machine's
  const auto& known = driver_gpus();
  if (!known) return std::nullopt;
  std::string ids;
  for (const DriverGpu& gpu : *known)
    if (gpu.is_reachable) ids += (ids.empty() ? "" : ",") + gpu.pci;
  return ids;
}

}  // namespace

std::optional<std::string> this_process(const char* name) {
  if (name == std::string_view(kReachableGpus)) return reachable_gpus();
  if (name == std::string_view(kWholes)) {
    static const auto known = wholes();  // the library takes its time
    return known;
  }
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

LocalRank local_rank(const Environment& environment) {
  const auto checked = [](std::optional<int> rank, std::optional<int> ranks) -> std::optional<LocalRank> {
    if (!rank || !ranks) return std::nullopt;
    if (*rank >= *ranks) throw SetUpError(fmt::format("the launcher says local rank {} of {}", *rank, *ranks));
    return LocalRank{*rank, *ranks};
  };
  for (const auto& [rank, ranks] :
       {std::pair("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"), {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}})
    if (const auto place = checked(number_of(environment, rank), number_of(environment, ranks))) return *place;
  const auto tasks = environment("SLURM_STEP_TASKS_PER_NODE");
  if (tasks && environment("SLURM_STEP_ID"))
    if (const auto place = checked(number_of(environment, "SLURM_LOCALID"),
                                   tasks_on_node(*tasks, number_of(environment, "SLURM_NODEID").value_or(0))))
      return *place;
  return {};
}

BoundBy bound_by(const Environment& environment, const Node& node, const IndexSet& cpus) {
  if (cpus == cpus_of(node)) return BoundBy::kNobody;
  if (environment("TUTTI_BOUND")) return BoundBy::kDefault;
  if (!environment("OMPI_MCA_orte_bound_at_launch")) return BoundBy::kUser;
  const auto mapping = environment("OMPI_MCA_rmaps_base_mapping_policy").value_or("");
  const bool asked = std::ranges::any_of(kBindingVariables, [&](const char* name) { return environment(name).has_value(); }) ||
                     mapping.find("PE=") != std::string::npos || mapping.find("pe=") != std::string::npos;
  return asked ? BoundBy::kUser : BoundBy::kDefault;
}

std::vector<int> visible_gpus(const Environment& environment, const Node& node, std::vector<std::string>& notes) {
  const auto is_nvidia = [](const PciDevice& gpu) { return gpu.vendor == "nvidia"; };
  const auto is_intel = [](const PciDevice& gpu) { return gpu.vendor == "intel"; };
  const auto is_other = [&](const PciDevice& gpu) { return !is_nvidia(gpu) && !is_intel(gpu); };
  std::vector<int> nvidia = numbered(environment, node, is_nvidia), others = numbered(environment, node, is_other);
  const std::vector<int> intel = numbered(environment, node, is_intel);
  if (const auto value = environment("CUDA_VISIBLE_DEVICES"))
    nvidia = choose(environment, "CUDA_VISIBLE_DEVICES", *value, node, nvidia, notes);
  if (const auto value = environment("ROCR_VISIBLE_DEVICES"))
    others = choose(environment, "ROCR_VISIBLE_DEVICES", *value, node, others, notes);
  // HIP counts what that has left, and takes CUDA's variable where its own says nothing
  const bool is_hip = !environment("HIP_VISIBLE_DEVICES").value_or("").empty();
  const char* name = is_hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
  std::vector<std::string> not_told;  // it may be NVIDIA's alone
  if (const auto value = environment(name); value && !value->empty() && !others.empty())
    others = choose(environment, name, *value, node, others, is_hip || nvidia.empty() ? notes : not_told);
  std::vector<int> visible = nvidia;
  visible.insert(visible.end(), others.begin(), others.end());
  visible.insert(visible.end(), intel.begin(), intel.end());
  return visible;
}

void add_parts(const Environment& environment, Node& node) {
  const auto wholes = numbered(environment, node, [](const PciDevice& gpu) { return gpu.vendor == "nvidia"; });
  for (const std::string& entry : split(environment("CUDA_VISIBLE_DEVICES").value_or(""))) {
    if (!entry.starts_with(kMigPart) || std::ranges::count(node.gpus, entry, &PciDevice::uuid)) continue;
    const auto whole = whole_of_part(environment, entry, node, wholes);
    if (!whole) continue;
    PciDevice part = node.gpus[static_cast<size_t>(*whole)];
    part.name += " " + entry;
    part.uuid = entry;
    node.gpus.push_back(std::move(part));
  }
  std::ranges::stable_sort(node.gpus, {}, [](const PciDevice& gpu) {
    return is_part(gpu) ? gpu.pci + gpu.uuid : "";
  });  // parts last, in no order of the variable's
}

std::vector<std::pair<std::string, std::string>> first_gpu(const Environment& environment, const Node& node, int gpu) {
  if (gpu < 0) return {};
  const std::string& vendor = node.gpus[static_cast<size_t>(gpu)].vendor;
  if ((vendor != "nvidia" && vendor != "amd") || node.gpus[static_cast<size_t>(gpu)].is_guessed) return {};
  const auto all = numbered(environment, node, [&](const PciDevice& one) { return one.vendor == vendor; });
  std::vector<int> order{gpu};
  std::vector<std::string> ignored;
  for (const int other : visible_gpus(environment, node, ignored))
    if (other != gpu && node.gpus[static_cast<size_t>(other)].vendor == vendor) order.push_back(other);
  const auto uuid = [&](int g) { return node.gpus[static_cast<size_t>(g)].uuid; };
  const bool have_uuids = std::ranges::all_of(order, [&](int g) {
    return !uuid(g).empty() && std::ranges::count(node.gpus, uuid(g), &PciDevice::uuid) == 1;
  });  // parts may share one
  std::string names;
  for (const int g : order)
    names += (names.empty() ? "" : ",") +
             (have_uuids ? node.gpus[static_cast<size_t>(g)].uuid : std::to_string(std::ranges::find(all, g) - all.begin()));
  if (vendor == "amd") {
    std::string counted = "0";  // HIP's numbers count what is left
    for (size_t i = 1; i < order.size(); ++i) counted += "," + std::to_string(i);
    return {{"ROCR_VISIBLE_DEVICES", names}, {"HIP_VISIBLE_DEVICES", counted}};
  }
  return {{"CUDA_VISIBLE_DEVICES", names}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}};
}

}  // namespace tutti::topology
