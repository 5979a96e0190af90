#include "topology/discover.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "core/settings.h"
#include "topology/driver.h"
#include "tutti/error.h"

namespace tutti::topology {
using namespace detail;
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

Topology make() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw SystemError("hwloc_topology_init failed");
  Topology made(topology);
  hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);  // distances are those of the whole machine
  return made;
}

Topology load_live() {
  Topology topology = make();
  for (const char* slow : {"opencl", "gl", "cuda"})  // they start drivers; nvml, rsmi and PCI say enough
    hwloc_topology_set_components(topology.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, slow);
  if (hwloc_topology_load(topology.get()) != 0)
    throw SystemError(fmt::format("hwloc can't look at this machine: {}", std::strerror(errno)));
  return topology;
}

std::string info(hwloc_obj_t object, const char* name) {
  const char* value = hwloc_obj_get_info_by_name(object, name);
  return value ? value : "";
}

IndexSet to_set(hwloc_const_bitmap_t bitmap) {
  IndexSet set;
  if (!bitmap || hwloc_bitmap_weight(bitmap) < 0) return set;  // infinite
  int index = -1;
  while ((index = hwloc_bitmap_next(bitmap, index)) >= 0) set.insert(index);
  return set;
}

// ---- processors and memory

struct Machine {
  hwloc_topology_t topology;
  std::vector<hwloc_obj_t> numa;  // the objects of Node::numa
};

/// The cores' own memory: the smallest NUMA node around them, the first of equals. Others have no CPUs: memory of GPUs, fast or
/// far memory.
hwloc_obj_t home_of(hwloc_topology_t topology, hwloc_obj_t core) {
  hwloc_obj_t best = nullptr;
  const auto rank = [](hwloc_obj_t numa) { return std::pair(hwloc_bitmap_weight(numa->cpuset), numa->os_index); };
  for (hwloc_obj_t numa = nullptr; (numa = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, numa));) {
    const bool is_of_gpu = numa->subtype && std::strcmp(numa->subtype, "GPUMemory") == 0;
    if (!is_of_gpu && numa->cpuset && hwloc_bitmap_intersects(numa->cpuset, core->cpuset) && (!best || rank(numa) < rank(best)))
      best = numa;
  }
  return best;
}

std::optional<int> latency_to(hwloc_distances_s* latencies, hwloc_obj_t home, hwloc_obj_t place) {
  std::optional<uint64_t> least;
  const int from = hwloc_distances_obj_index(latencies, home);
  for (unsigned to = 0; from >= 0 && to < latencies->nbobjs; ++to) {
    if (!latencies->objs[to] || !hwloc_bitmap_intersects(latencies->objs[to]->complete_cpuset, place->complete_cpuset)) continue;
    const uint64_t value = latencies->values[static_cast<size_t>(from) * latencies->nbobjs + to];
    least = std::min(value, least.value_or(value));
  }
  return least ? std::optional(static_cast<int>(std::min<uint64_t>(*least, INT_MAX))) : std::nullopt;
}

/// From each NUMA node to a device's place. Complete sets count: a device keeps its place where the CPUs beside it are forbidden.
std::vector<int> distances_to(const Machine& machine, hwloc_obj_t place) {
  constexpr int kSameNode = 11, kSamePackage = 20, kFar = 40;
  unsigned count = 1;
  hwloc_distances_s* latencies = nullptr;
  const bool are_known = hwloc_distances_get_by_name(machine.topology, "NUMALatency", &count, &latencies, 0) == 0 && count > 0;
  std::vector<int> distances;
  for (hwloc_obj_t home : machine.numa) {
    const auto latency = are_known && home ? latency_to(latencies, home, place) : std::nullopt;
    hwloc_obj_t package = home ? hwloc_get_ancestor_obj_by_type(machine.topology, HWLOC_OBJ_PACKAGE, home) : nullptr;
    if (!package) package = hwloc_get_root_obj(machine.topology);
    const int otherwise = hwloc_bitmap_intersects(package->complete_cpuset, place->complete_cpuset) ? kSamePackage : kFar;
    distances.push_back(std::max(latency.value_or(otherwise), kSameNode));
  }
  if (are_known) hwloc_distances_release(machine.topology, latencies);
  return distances;
}

Machine add_cores_and_memory(hwloc_topology_t topology, Node& node) {
  const IndexSet allowed = to_set(hwloc_topology_get_allowed_cpuset(topology));
  std::vector<std::pair<Core, hwloc_obj_t>> cores;
  const auto type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object));) {
    Core core{.cpus = to_set(object->cpuset) & allowed};
    if (core.cpus.empty()) continue;
    hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object);
    core.package = package ? static_cast<int>(package->logical_index) : 0;
    core.kind = std::max(0, hwloc_cpukinds_get_by_cpuset(topology, object->cpuset, 0));
    cores.emplace_back(std::move(core), home_of(topology, object));
  }
  std::vector<hwloc_obj_t> homes;
  for (const auto& [core, home] : cores)
    if (!std::ranges::count(homes, home)) homes.push_back(home);
  std::ranges::sort(homes, {}, [](hwloc_obj_t numa) { return numa ? numa->os_index : 0; });
  for (hwloc_obj_t numa : homes) {
    const bool is_allowed = numa && hwloc_bitmap_isset(hwloc_topology_get_allowed_nodeset(topology), numa->os_index);
    node.numa.push_back({numa ? static_cast<int>(numa->os_index) : 0, is_allowed ? numa->attr->numanode.local_memory : 0});
  }
  for (auto& [core, home] : cores) {
    core.numa = static_cast<int>(std::ranges::find(homes, home) - homes.begin());
    node.cores.push_back(std::move(core));
  }
  std::ranges::sort(node.cores, {}, [](const Core& core) { return std::tuple(core.package, core.numa, core.cpus); });
  return {topology, homes};
}

// ---- devices

std::string pci_id(hwloc_obj_t pci) {
  const auto& at = pci->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", at.domain, at.bus, at.dev, at.func);
}

std::string vendor_of(unsigned pci_vendor) {
  const std::map<unsigned, std::string> known{{0x10de, "nvidia"}, {0x1002, "amd"}, {0x8086, "intel"}};
  const auto found = known.find(pci_vendor);
  return found == known.end() ? "" : found->second;
}

PciDevice device_at(const Machine& machine, hwloc_obj_t pci, std::string name, std::string model) {
  hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(machine.topology, pci);
  const auto blank = [](char c) { return c == ' '; };
  model.erase(std::ranges::find_if_not(model.rbegin(), model.rend(), blank).base(), model.end());
  std::vector<std::string> bridges;
  for (hwloc_obj_t above = pci->parent; above && above->type == HWLOC_OBJ_BRIDGE; above = above->parent)
    bridges.push_back(
        fmt::format("{}/{}", above->attr->bridge.downstream.pci.domain, above->attr->bridge.downstream.pci.secondary_bus));
  std::ranges::reverse(bridges);
  return {.name = std::move(name),
          .pci = pci_id(pci),
          .uuid = {},
          .model = std::move(model),
          .vendor = vendor_of(pci->attr->pcidev.vendor_id),
          .near = to_set(place->complete_cpuset),
          .distances = distances_to(machine, place),
          .bridges = std::move(bridges)};
}

/// Which library an operating system's device is of, from its name.
std::string library_of(hwloc_obj_t os_device) {
  const std::string name = os_device->name ? os_device->name : "";
  for (const char* library : {"cuda", "rsmi", "nvml", "ze"})
    if (name.starts_with(library)) return library;
  return "";
}

/// ROCm wants "GPU-" and 16 digits, of which hwloc has the number.
std::string as_driver_names_it(std::string_view key, const std::string& uuid) {
  return key == "AMDUUID" && !uuid.empty() && !uuid.starts_with("GPU-") ? fmt::format("GPU-{:0>16}", uuid) : uuid;
}

using ByLibrary = std::map<std::string, std::vector<hwloc_obj_t>>;

int number_in(hwloc_obj_t os_device, const std::string& library) {
  return static_cast<int>(std::strtol(os_device->name + library.size(), nullptr, 10));
}

bool is_below(hwloc_obj_t object, hwloc_obj_t above) {
  while (object && object != above) object = object->parent;
  return object != nullptr;
}

/// One GPU has a device of each library; a GPU in parts (CPX) has several of one. ROCm tells a PCI function of their own for
/// parts but the first, which the bus has not: hwloc before 2.12 leaves these at the bridge. Drivers number parts one after
/// another, so they are of the GPU with the next lower number.
std::map<hwloc_obj_t, ByLibrary> gpu_devices(hwloc_topology_t topology) {
  std::map<hwloc_obj_t, ByLibrary> all;
  std::vector<hwloc_obj_t> strays;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_osdev(topology, device));) {
    const auto library = library_of(device);
    if (library.empty()) continue;
    if (device->parent->type == HWLOC_OBJ_PCI_DEVICE) all[device->parent][library].push_back(device);
    else strays.push_back(device);
  }
  for (hwloc_obj_t stray : strays) {
    const auto library = library_of(stray);
    std::vector<hwloc_obj_t>* owner = nullptr;
    for (auto& [pci, by_library] : all) {
      const auto found = by_library.find(library);
      if (found == by_library.end() || !is_below(pci, stray->parent)) continue;
      const int number = number_in(found->second[0], library);
      if (number < number_in(stray, library) && (!owner || number > number_in((*owner)[0], library))) owner = &found->second;
    }
    if (owner) owner->push_back(stray);
  }
  for (auto& [pci, by_library] : all)
    for (auto& [library, devices] : by_library)
      std::ranges::sort(devices, {}, [&name = library](hwloc_obj_t device) { return number_in(device, name); });
  return all;
}

void add_gpus_of(const Machine& machine, hwloc_obj_t pci, const ByLibrary& by_library, Node& node) {
  const auto& parts = std::ranges::max_element(by_library, {}, [](const auto& entry) { return entry.second.size(); })->second;
  for (size_t i = 0; i < parts.size(); ++i) {
    PciDevice gpu = device_at(machine, pci, parts[i]->name, info(parts[i], "GPUModel"));
    for (const auto& [library, devices] : by_library)
      for (const char* key : {"NVIDIAUUID", "AMDUUID", "LevelZeroUUID"})
        if (devices.size() == parts.size() && gpu.uuid.empty()) gpu.uuid = as_driver_names_it(key, info(devices[i], key));
    if (gpu.model.empty()) gpu.model = info(pci, "PCIDevice");
    node.gpus.push_back(std::move(gpu));
  }
}

/// For machines whose hwloc knows no GPU library: 3D and display controllers of those who make GPUs to compute with, not a
/// mainboard's VGA; AMD's newer ones are "processing accelerators".
bool looks_like_gpu(hwloc_obj_t device) {
  const auto& pci = device->attr->pcidev;
  const bool is_nvidia = pci.vendor_id == 0x10de, is_amd = pci.vendor_id == 0x1002, is_intel = pci.vendor_id == 0x8086;
  if (pci.class_id == 0x0302) return is_nvidia || is_amd || is_intel;
  if (pci.class_id == 0x0300) return is_nvidia || is_amd;
  if (pci.class_id == 0x0380) return is_nvidia || is_amd || is_intel;
  return pci.class_id == 0x1200 && is_amd;
}

/// The name of a card that carries MPI's or NCCL's messages: mlx5_0, hsn0. Empty: it is no such card, or has no driver.
/// Slingshot's cards (Cray's) are Ethernet to PCI, and what their interfaces are called (hsn0, hsi0) is up to the site.
std::string fabric_of(hwloc_obj_t pci) {
  constexpr unsigned kInfiniBand = 0x0207, kFabric = 0x0208, kNetwork = 0x02, kCray = 0x17db;
  const auto& is = pci->attr->pcidev;
  const bool is_slingshot = is.vendor_id == kCray && is.class_id >> 8 == kNetwork;
  const bool is_fabric = is.class_id == kInfiniBand || is.class_id == kFabric || is_slingshot;
  std::optional<std::pair<bool, std::string>> best;  // OpenFabrics' names first
  for (hwloc_obj_t device = pci->io_first_child; device; device = device->next_sibling) {
    if (device->type != HWLOC_OBJ_OS_DEVICE || !device->name) continue;
    const std::string name = device->name;
    const bool is_openfabrics = device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
    const bool is_interface = is_fabric && device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK;
    if (!is_openfabrics && !is_interface && !name.starts_with("hsn") && !name.starts_with("cxi")) continue;
    const std::pair found(!is_openfabrics, name);
    if (!best || found < *best) best = found;
  }
  return best ? best->second : "";
}

void add_devices(const Machine& machine, Node& node) {
  const auto sure = gpu_devices(machine.topology);
  for (hwloc_obj_t pci = nullptr; (pci = hwloc_get_next_pcidev(machine.topology, pci));) {
    if (const auto found = sure.find(pci); found != sure.end()) {
      add_gpus_of(machine, pci, found->second, node);
    } else if (looks_like_gpu(pci)) {
      node.gpus.push_back(device_at(machine, pci, pci_id(pci), info(pci, "PCIDevice")));
      node.gpus.back().is_guessed = true;
    }
    const std::string fabric = fabric_of(pci);
    if (!fabric.empty()) node.nics.push_back(device_at(machine, pci, fabric, info(pci, "PCIDevice")));
  }
  const auto place = [](const PciDevice& device) {
    return std::pair(device.pci, std::pair(device.name.size(), device.name));
  };  // rsmi2 before rsmi10
  std::ranges::sort(node.gpus, {}, place);
  std::ranges::sort(node.nics, {}, place);
}

Node describe(hwloc_topology_t topology) {
  Node node;
  node.host = info(hwloc_get_root_obj(topology), "HostName");
  add_devices(add_cores_and_memory(topology, node), node);
  return node;
}

}  // namespace

Node discover() {
  if (const std::string& file = settings().topology; !file.empty()) return read_topology(file);
  const Topology topology = load_live();
  Node node = describe(topology.get());
  ask_drivers(node, driver_gpus(), "");
  return node;
}

IndexSet usable_cpus() {
  const Topology topology = make();
  hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(topology.get()) != 0)
    throw SystemError(fmt::format("hwloc can't look at this machine: {}", std::strerror(errno)));
  return to_set(hwloc_topology_get_allowed_cpuset(topology.get()));
}

Node parse_topology(const std::string& xml) {
  const Topology topology = make();
  if (xml.size() >= INT_MAX || hwloc_topology_set_xmlbuffer(topology.get(), xml.c_str(), static_cast<int>(xml.size()) + 1) != 0 ||
      hwloc_topology_load(topology.get()) != 0)
    throw UsageError("no topology of hwloc's: expected XML as `lstopo FILE.xml` writes it");
  Node node = describe(topology.get());
  ask_drivers(node, std::nullopt, "/nowhere");  // this kernel knows nothing of them
  if (node.cores.empty()) throw UsageError("a topology without a core that may be used");
  return node;
}

Node read_topology(const std::string& file) {
  if (std::filesystem::is_directory(file)) throw UsageError(fmt::format("{}: {}", file, std::strerror(EISDIR)));
  std::ifstream in(file, std::ios::binary);
  const std::string xml((std::istreambuf_iterator<char>(in)), {});
  if (!in) throw UsageError(fmt::format("{}: {}", file, std::strerror(errno ? errno : EIO)));
  try {
    return parse_topology(xml);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", file, error.what()));
  }
}

}  // namespace tutti::topology
