#pragma once

#include "control/segment/segment.h"

namespace tutti::detail {

/// MPI_Abort, also where MPI itself is stuck. Ranks other than 0 wait 0.5 s first: mpirun 4.1 may crash of two at once.
[[noreturn]] void abort_job(int code);
/// The session is lost: says why and aborts the job. Where the launcher is out of reach the node's other ranks see us end
/// (PeerWatch).
[[noreturn]] void end_node(Segment& segment);

}  // namespace tutti::detail
