#pragma once

namespace tutti {

/// SIGUSR2 in the controller's process writes the hang report of all live sessions; elsewhere, and SIGUSR1, it does nothing (mpirun
/// forwards both to all ranks, and their default is to kill). A handler of the program's own stays.
void watch_signals(bool is_controller);

}  // namespace tutti
