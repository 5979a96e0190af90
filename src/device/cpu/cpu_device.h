#pragma once

#include "device/device_api.h"

namespace tutti::detail {

DeviceApi& cpu_device();

}  // namespace tutti::detail
