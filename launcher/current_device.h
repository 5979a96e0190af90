#pragma once

#include <optional>
#include <string>

namespace tutti::launcher {

/// PCI id of the device that a program takes unless it chooses, asked of the vendor's driver ("nvidia": libcuda, "amd": HIP), in
/// a process of its own. Nothing: there is no driver, or it does not answer.
std::optional<std::string> current_device(const std::string& vendor);

}  // namespace tutti::launcher
