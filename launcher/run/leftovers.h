#pragma once

#include <sys/types.h>

#include <filesystem>
#include <vector>

namespace tutti::launcher {

std::vector<pid_t> children();  ///< of this process

/// Removes Open MPI's shared memory on this host (/dev/shm/vader_segment.*) that is ours, younger than `begun`, and mapped by nobody: what
/// is left when ranks are killed.
void sweep_segments(std::filesystem::file_time_type begun);

}  // namespace tutti::launcher
