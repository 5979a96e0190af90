// What drivers say of their GPUs by files: hwloc is often built without their libraries, and containers and Slurm hide GPUs from
// a driver's users, not from the bus.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topology/node.h"

namespace tutti::topology {

/// What NVIDIA's driver says of one.
struct DriverGpu {
  std::string pci, uuid;
  bool is_reachable = false;  ///< this process may open it: its device file is here, and its control group allows it
};

/// By PCI id. Nothing: no driver is loaded, or it does not tell (/proc/driver/nvidia/gpus), or no device file has been made since
/// the machine was started, which the first program does.
std::optional<std::vector<DriverGpu>> read_driver_gpus(const std::string& root);
const std::optional<std::vector<DriverGpu>>& driver_gpus();  ///< of this machine, read once: each reading asks the driver

/// Confirms what hwloc has guessed from the bus, and adds UUIDs. Guesses are idle where no driver that computes has them
/// (nouveau, vfio-pci for a virtual machine, none), and go where others are sure (a processor's graphics beside them).
void ask_drivers(Node& node, const std::optional<std::vector<DriverGpu>>& nvidia, const std::string& root);

/// Parts of GPUs (MIG, by their own UUIDs) and the PCI ids of those that they are of, as NVIDIA's management library
/// (libnvidia-ml) says; those that it knows.
std::vector<std::pair<std::string, std::string>> wholes_of_parts(const std::vector<std::string>& uuids);

}  // namespace tutti::topology
