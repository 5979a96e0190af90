#pragma once

#include <sys/types.h>

#include <string>

namespace tutti::launcher {

/// A line for each of a launcher's ranks on this host: what its main thread does, and the lines of source that led there, as far
/// as there is debug information. If some wait in MPI and others do not, these are named: a job that stands still most often
/// waits for them.
std::string where_ranks_are(pid_t launcher);

}  // namespace tutti::launcher
