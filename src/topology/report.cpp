#include "topology/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tutti::topology {
namespace {

size_t cores_in(const Node& node, const IndexSet& cpus) {
  return static_cast<size_t>(std::ranges::count_if(node.cores, [&](const Core& core) { return intersect(core.cpus, cpus); }));
}

std::string size(uint64_t bytes) { return fmt::format("{:.0f} GiB", static_cast<double>(bytes) / (1 << 30)); }

nlohmann::ordered_json to_json(const PciDevice& device) {
  return {{"name", device.name},
          {"pci", device.pci},
          {"uuid", device.uuid},
          {"model", device.model},
          {"cpus", to_string(device.near)}};
}

}  // namespace

std::string to_table(const Node& node, const std::vector<Placement>& placements) {
  std::vector<std::vector<std::string>> rows{{"rank", "gpu", "pci", "cores", "cpus", "memory", "nic", "distance"}};
  for (size_t r = 0; r < placements.size(); ++r) {
    const Placement& p = placements[r];
    const PciDevice* gpu = p.gpu < 0 ? nullptr : &node.gpus[static_cast<size_t>(p.gpu)];
    std::string memory;
    for (const int numa : p.memory) memory += (memory.empty() ? "" : ",") + std::to_string(numa);
    rows.push_back({std::to_string(r), gpu ? gpu->name : "-", gpu ? gpu->pci : "-",
                    std::to_string(cores_in(node, p.cpus)) + (p.shares_cores ? " shared" : ""), to_string(p.cpus), memory,
                    p.nic < 0 ? "-" : node.nics[static_cast<size_t>(p.nic)].name, gpu ? std::to_string(p.distance) : "-"});
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  uint64_t memory = 0;
  for (const NumaNode& numa : node.numa) memory += numa.memory_bytes;
  fmt::format_to(std::back_inserter(text), "{}: {} cores, {} CPUs, {} NUMA nodes, {}, {} GPUs\n",
                 node.host.empty() ? "this node" : node.host, node.cores.size(), cpus_of(node).size(), node.numa.size(),
                 size(memory), node.gpus.size());
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) fmt::format_to(std::back_inserter(line), "{:<{}}  ", row[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string to_json(const Node& node, const std::vector<Placement>& placements) {
  nlohmann::ordered_json json{{"schema", "tutti.map/1"}, {"host", node.host}};
  for (const char* list : {"numa", "gpus", "nics", "ranks"}) json[list] = nlohmann::json::array();
  for (const NumaNode& numa : node.numa) json["numa"].push_back({{"index", numa.os_index}, {"memory_bytes", numa.memory_bytes}});
  for (const PciDevice& gpu : node.gpus) json["gpus"].push_back(to_json(gpu));
  for (const PciDevice& nic : node.nics) json["nics"].push_back(to_json(nic));
  for (size_t r = 0; r < placements.size(); ++r) {
    const Placement& p = placements[r];
    json["ranks"].push_back({{"rank", r},
                             {"gpu", p.gpu},
                             {"nic", p.nic},
                             {"cpus", to_string(p.cpus)},
                             {"memory", p.memory},
                             {"distance", p.distance},
                             {"shares_cores", p.shares_cores}});
  }
  return json.dump(2);
}

}  // namespace tutti::topology
