#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tutti::launcher {

std::vector<pid_t> children(pid_t parent);
std::map<pid_t, std::vector<pid_t>> children_of_all();            ///< by parent
bool maps(pid_t process, const std::string& part_of_name);        ///< a file with this in its name
bool waits_in_kernel(pid_t process);                              ///< one of its threads does (state D)
std::string variable_of(pid_t process, const std::string& name);  ///< as it was started; empty if it has none, or can't be read

/// Removes Open MPI's shared memory on this host (/dev/shm/vader_segment.*) that is ours, younger than `begun`, and mapped by
/// nobody: what is left when ranks are killed.
void sweep_segments(std::filesystem::file_time_type begun);

/// Removes the temporary files of an mpirun that has ended (/tmp/ompi.<host>.<user>/pid.<mpirun>): it leaves them when it is
/// killed.
void sweep_session(pid_t mpirun);

}  // namespace tutti::launcher
