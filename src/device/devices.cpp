#include "device/devices.h"

#include <fmt/format.h>

#include <fstream>
#include <map>

#include "core/env.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/gpu_device.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

std::map<int32_t, DeviceApi*>& added() {
  static auto& table = *new std::map<int32_t, DeviceApi*>;  // leaked: tensors in static objects may go later
  return table;
}

bool is_gpu(Device device) { return device.type == dl::kCUDA || device.type == dl::kROCM; }

}  // namespace

DeviceApi* find_device_api(Device device) {
  if (device.type == dl::kCPU) return device.id == 0 ? &cpu_device() : nullptr;
  if (const auto it = added().find(device.type); it != added().end()) return it->second;
  if (is_gpu(device)) try {
      return &gpu_device(device.type);
    } catch (const SystemError&) {  // device_api() tells why
    }
  return nullptr;
}

DeviceApi& device_api(Device device) {
  if (DeviceApi* api = find_device_api(device)) return *api;
  if (is_gpu(device)) return gpu_device(device.type);
  throw UsageError(fmt::format("no back end for {} in this build; use cpu(0)", to_string(device)));
}

std::string physical_name(Device device) {
  const auto ids = device_api(device).pci_ids();
  if (device.id < 0 || static_cast<size_t>(device.id) >= ids.size()) return {};
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{} on {} {}", ids[static_cast<size_t>(device.id)], host_name(), boot);
}

void add_device_api(int32_t type, DeviceApi& api) { added()[type] = &api; }

}  // namespace tutti::detail
