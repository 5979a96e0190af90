#pragma once

#include <cstddef>
#include <string_view>

#include "tutti/device.h"

namespace tutti {

/// What a kind of memory must offer. Implementations are stateless and thread-safe.
class DeviceApi {
 public:
  virtual ~DeviceApi() = default;
  virtual std::string_view name() const = 0;
  virtual void* allocate(size_t size_bytes, int device_id) = 0;  ///< aligned to 64; @throws SystemError
  virtual void free(void* memory, size_t size_bytes, int device_id) noexcept = 0;
  virtual void copy(void* to, const void* from, size_t size_bytes, Device to_device, Device from_device) = 0;
};

/// The back end of a device type: one explicit table.  @throws UsageError  this build has none for it
DeviceApi& device_api(Device device);

}  // namespace tutti
