#pragma once

#include <cstdint>
#include <string>

#include "tutti/dlpack.h"
#include "tutti/export.h"

namespace tutti {

/// Where memory lies: a DLPack device type and an index among the visible devices of that type.
struct Device {
  int32_t type = dl::kCPU;
  int32_t id = 0;

  bool operator==(const Device&) const = default;
};

constexpr Device cpu(int id = 0) { return {dl::kCPU, id}; }
constexpr Device cuda(int id = 0) { return {dl::kCUDA, id}; }

TUTTI_API std::string to_string(Device device);  ///< "cpu(0)", "cuda(1)"

}  // namespace tutti
