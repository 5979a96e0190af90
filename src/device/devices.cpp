#include "device/devices.h"

#include <fmt/format.h>

#include <map>

#include "device/cpu/cpu_device.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

std::map<int32_t, DeviceApi*>& added() {
  static auto& table = *new std::map<int32_t, DeviceApi*>;  // leaked: tensors in static objects may go later
  return table;
}

}  // namespace

DeviceApi* find_device_api(Device device) {
  if (device.type == dl::kCPU) return device.id == 0 ? &cpu_device() : nullptr;
  const auto it = added().find(device.type);
  return it == added().end() ? nullptr : it->second;
}

DeviceApi& device_api(Device device) {
  if (DeviceApi* api = find_device_api(device)) return *api;
  throw UsageError(fmt::format("no back end for {} in this build; use cpu(0)", to_string(device)));
}

void add_device_api(int32_t type, DeviceApi& api) { added()[type] = &api; }

}  // namespace tutti::detail
