#pragma once

#include <map>
#include <utility>

#include "tutti/device.h"

namespace tutti {

/// The streams on which work for devices belongs, by type and id of the device. A worker has one set, also when it runs on
/// two threads, as worker 0 does.
using Streams = std::map<std::pair<int32_t, int32_t>, void*>;

/// This thread's set from now on; null: the thread's own.
void use_streams(Streams* streams);

void* current_stream(Device device);                    ///< null (the default stream, or none: the CPU) until set
void* set_current_stream(Device device, void* stream);  ///< returns the one before

}  // namespace tutti
