#pragma once

#include "tutti/device.h"

namespace tutti {

/// The stream of this thread on which work for a device belongs; null (the default stream, or none: the CPU) until set.
void* current_stream(Device device);
void* set_current_stream(Device device, void* stream);  ///< returns the one before

}  // namespace tutti
