// tutti beside a program's own MPI code. Needs MPI's include path (mpicxx): no other public header does.
#pragma once

// the old C++ bindings would have to be linked
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include "tutti/export.h"
#include "tutti/session.h"
#include "tutti/worker.h"

namespace tutti::interop {

/// A session whose workers are the ranks of a communicator: for programs that are SPMD themselves and want a controller for a
/// while. Collective over `comm` (an intracommunicator; duplicated, so that nothing meets the caller's messages). Its rank 0 gets
/// the session and is worker 0; the others work for it, and get an empty Session once it is shut down. Then all go on, and may
/// make the next one. `options` count on rank 0. Disjoint communicators may have a session each, at the same time; a session that
/// breaks aborts the whole MPI job, the other's ranks included. MPI must have been initialised with MPI_THREAD_MULTIPLE.
///
/// A RemoteError is rank 0's alone: the others return from here once the session is shut down, so tell them (MPI_Bcast) before
/// they wait for a rank 0 that has returned early. Shut down before MPI_Finalize: it ends an idle session of one node, else the
/// job aborts.
/// @throws UsageError   on every rank: comm is unfit, MPI is not (or no longer) there, another session has this process, or
///                      tutti::run has. On rank 0 alone: bad options (the others return an empty Session).
/// @throws SystemError  on every rank: one can't take part, no shared memory, say (it names the reason)
TUTTI_API Session session_from(MPI_Comm comm, SessionOptions options = {}, Where where = Where::current());

/// The communicator of a worker's peers: ranks are `comm`'s ranks. For a worker function's own MPI calls; tutti sends nothing on
/// it. Collective over `comm` when first asked for: members agree first, so one that fails fails all. It lives until the session
/// ends (of a split: until the command ends); don't free it. In a session of one group that of group() is that of world(). MPI
/// calls on it are MPI's: a member that does not join hangs the others, and its error handler is MPI_COMM_WORLD's.
/// @throws UsageError  the session's workers are no MPI ranks (threads, ProcessSession)
TUTTI_API MPI_Comm communicator(const Comm& comm);

}  // namespace tutti::interop
