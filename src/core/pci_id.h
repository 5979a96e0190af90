#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace tutti::detail {

/// As hwloc writes it: drivers say "00000000:3B:00.0" and "0:3b:00.0" for "0000:3b:00.0".
inline std::string normal_pci_id(std::string id) {
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t colon = id.find(':');
  if (colon == std::string::npos) return id;
  return colon < 4 ? std::string(4 - colon, '0') + id : id.substr(colon - 4);
}

}  // namespace tutti::detail
