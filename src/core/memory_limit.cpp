#include "core/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace tutti::detail {
namespace {

namespace fs = std::filesystem;

struct Names {
  const char* limits[2];  // beyond memory.high a process is not killed but slowed down
  const char* usage;
  const char* reclaimable[2];
};
constexpr Names kVersion1 = {{"memory.limit_in_bytes"}, "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr Names kVersion2 = {{"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}};

std::optional<uint64_t> number_in(const fs::path& file) {
  uint64_t value = 0;
  std::ifstream in(file);
  return in >> value ? std::optional(value) : std::nullopt;  // "max": no limit
}

uint64_t sum_of(const fs::path& file, const Names& names) {
  std::ifstream in(file);
  std::string word;
  uint64_t sum = 0;
  for (uint64_t value = 0; in >> word >> value;)
    if (word == names.reclaimable[0] || word == names.reclaimable[1]) sum += value;
  return sum;
}

std::optional<uint64_t> left_in(const fs::path& group, const Names& names) {
  std::optional<uint64_t> limit;
  for (const char* name : names.limits)
    if (const auto one = name ? number_in(group / name) : std::nullopt) limit = std::min(limit.value_or(UINT64_MAX), *one);
  const auto usage = number_in(group / names.usage);
  if (!limit || !usage) return std::nullopt;
  const uint64_t used = *usage - std::min(*usage, sum_of(group / "memory.stat", names));
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

std::optional<uint64_t> memory_left(const fs::path& proc, const fs::path& cgroups) noexcept try {
  std::ifstream in(proc / "self/cgroup");
  for (std::string line; std::getline(in, line);) {  // 4:memory:/path, or 0::/path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) return least_left(cgroups / "memory", path, kVersion1);
    if (controllers == ",," && fs::exists(cgroups / "cgroup.controllers")) return least_left(cgroups, path, kVersion2);
  }
  return std::nullopt;
} catch (const std::exception&) {  // files that may not be looked at, or no memory for it
  return std::nullopt;
}

}  // namespace tutti::detail
