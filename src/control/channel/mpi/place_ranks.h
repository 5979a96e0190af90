#pragma once

#include <mpi.h>

#include "topology/assign.h"

namespace tutti::detail {

/// Puts the ranks of a machine on their cores. Collective over them. One looks at the machine and plans for all. What can't be
/// done is no error: ranks stay where they are.
void place_ranks(MPI_Comm machine, topology::Binding binding);

}  // namespace tutti::detail
