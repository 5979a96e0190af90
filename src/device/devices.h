#pragma once

#include <string>

#include "device/device_api.h"

namespace tutti::detail {

/// The back end of a device type: one explicit table.  @throws UsageError  this build has none for it  @throws SystemError  this
/// machine has none
DeviceApi& device_api(Device device);
DeviceApi* find_device_api(Device device);  ///< null: there is none for it
/// "0000:3b:00.0 on node7" and what tells machines of one name apart: each GPU has its own, whatever number a process gives it.
/// "": not known.  @throws as device_api()
std::string physical_name(Device device);

/// One more row, of a device that a test brings. Before the first session; `api` lives as long as the process.
void add_device_api(int32_t type, DeviceApi& api);

}  // namespace tutti::detail
