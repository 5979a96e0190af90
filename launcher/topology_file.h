#pragma once

#include <string>

namespace tutti::launcher {

/// hwloc 2.9 crashes on some damaged files: this reads it in a process of its own first. What is no regular file is not looked
/// at: a pipe is read once.
/// @throws UsageError  hwloc can't
void check_topology_file(const std::string& file);

}  // namespace tutti::launcher
