#include "device/device_api.h"

#include <fmt/format.h>

#include "device/cpu/cpu_device.h"
#include "tutti/error.h"

namespace tutti {

DeviceApi& device_api(Device device) {
  if (device.type == dl::kCPU && device.id == 0) return cpu_device();
  throw UsageError(fmt::format("no back end for {} in this build; use cpu(0)", to_string(device)));
}

}  // namespace tutti
