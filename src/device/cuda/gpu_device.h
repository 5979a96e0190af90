#pragma once

#include <cstdint>

#include "device/device_api.h"

namespace tutti::detail {

/// `type`: DLPack's kCUDA or kROCM.  @throws SystemError  there is no driver, or no GPU, that says what to do
DeviceApi& gpu_device(int32_t type);

}  // namespace tutti::detail
