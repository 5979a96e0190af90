#pragma once

#include "device/device_api.h"

namespace tutti {

DeviceApi& cpu_device();

}  // namespace tutti
