#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tutti::detail {

/// Bytes that this process may still take under the memory limits of its control groups and their parents (version 1 or 2: what
/// Slurm and containers set), memory of files that can be taken back counted as free. None when there is no limit, or none that
/// can be read.
std::optional<uint64_t> memory_left(const std::filesystem::path& proc = "/proc",
                                    const std::filesystem::path& cgroups = "/sys/fs/cgroup") noexcept;

}  // namespace tutti::detail
