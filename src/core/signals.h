#pragma once

#include <string_view>

namespace tutti::detail {

/// SIGUSR1 and SIGUSR2 are for the controller (below); elsewhere they do nothing (mpirun forwards both to all ranks, and their
/// default is to kill). In a rank of a job SIGPIPE does nothing either: Open MPI writes to the connection of a rank that has died
/// on another host, and this one is to live long enough to say which. A handler of the program's own stays.
/// TUTTI_PREEMPT_SIGNAL=USR1 or TERM: this one asks for preemption.
/// @throws UsageError To be called before MPI_Init: MPICH takes SIGUSR1 as well, and calls what was there.
void watch_signals(bool is_rank);
void leave_interrupts_to_controller();  ///< a worker process: Ctrl-C reaches it as well. To be called on the main thread, which
                                        ///< has blocked SIGINT
void report_on_signal(
    void (*report)(std::string_view why));  ///< the controller: `report` at each SIGUSR2, on a thread of its own

bool preemption_is_asked_for();  ///< since the process began

}  // namespace tutti::detail
