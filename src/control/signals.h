#pragma once

namespace tutti {

/// SIGUSR2 in the controller's process writes the hang report of all live sessions; elsewhere it does nothing, nor does SIGUSR1 (mpirun
/// forwards both to all ranks, and their default is to kill). A handler of the program's own stays.
/// TUTTI_PREEMPT_SIGNAL=USR1 or TERM: this one asks the controller for preemption and does nothing to the others.  @throws UsageError
void watch_signals(bool is_controller);

bool preemption_is_asked_for();  ///< since the process began

}  // namespace tutti
