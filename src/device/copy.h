#pragma once

#include "device/streams.h"

namespace tutti::detail {

/// Copies bytes of which one side at least is a device's, on the current stream of `to`, or of `from` if that is the only device.
/// To a device: `from` may change on return; what comes later on the stream finds the bytes. To the host: complete on return.
/// @throws SystemError  as Streams::finish()  @throws UsageError  between devices of two types
void copy(Streams& streams, Device to_device, void* to, Device from_device, const void* from, size_t size_bytes);

}  // namespace tutti::detail
