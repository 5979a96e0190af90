// What NVIDIA's driver says of its GPUs by files: hwloc is often built without its libraries, and containers and Slurm hide GPUs from the
// driver's users, not from the bus.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tutti::topology {

struct DriverGpu {
  std::string pci, uuid;
  bool is_reachable = false;  ///< this process may open it: its device file is here, and its control group allows it
};

/// By PCI id. Nothing: no driver is loaded, or it does not tell (/proc/driver/nvidia/gpus), or no device file has been made since the machine was
/// started, which the first program does.
std::optional<std::vector<DriverGpu>> read_driver_gpus(const std::string& root);
const std::optional<std::vector<DriverGpu>>& driver_gpus();  ///< of this machine, read once: each reading asks the driver

}  // namespace tutti::topology
