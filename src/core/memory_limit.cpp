#include "core/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tutti {
namespace {

namespace fs = std::filesystem;

struct Names {
  const char *limit, *usage, *reclaimable;
};
constexpr Names kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr Names kVersion2 = {"memory.max", "memory.current", "inactive_file"};

std::optional<uint64_t> number_in(const fs::path& file) {
  uint64_t value = 0;
  std::ifstream in(file);
  return in >> value ? std::optional(value) : std::nullopt;  // "max": no limit
}

uint64_t number_named(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  std::string word;
  for (uint64_t value = 0; in >> word >> value;)
    if (word == name) return value;
  return 0;
}

std::optional<uint64_t> left_in(const fs::path& group, const Names& names) {
  const auto limit = number_in(group / names.limit), usage = number_in(group / names.usage);
  if (!limit || !usage) return std::nullopt;
  const uint64_t used = *usage - std::min(*usage, number_named(group / "memory.stat", names.reclaimable));
  return *limit - std::min(*limit, used);
}

/// In a container the path may be that of the host, while the files of its own group lie at the top.
std::optional<uint64_t> least_left(const fs::path& top, const fs::path& path, const Names& names) {
  std::optional<uint64_t> least;
  for (fs::path at = path.relative_path();; at = at.parent_path()) {
    if (const auto left = left_in(top / at, names)) least = std::min(least.value_or(UINT64_MAX), *left);
    if (at.empty()) return least;
  }
}

}  // namespace

std::optional<uint64_t> memory_left(const fs::path& proc, const fs::path& cgroups) {
  std::ifstream in(proc / "self/cgroup");
  for (std::string line; std::getline(in, line);) {  // 4:memory:/path, or 0::/path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) return least_left(cgroups / "memory", path, kVersion1);
    if (controllers == ",," && fs::exists(cgroups / "cgroup.controllers")) return least_left(cgroups, path, kVersion2);
  }
  return std::nullopt;
}

}  // namespace tutti
