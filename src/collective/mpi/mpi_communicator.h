#pragma once

#include "collective/communicator.h"

namespace tutti {

/// Plain MPI calls on a communicator of our own, made by MPI_Comm_create_group from plane.mpi_parent.
std::unique_ptr<Communicator> make_mpi_communicator(const DataPlane& plane, const std::vector<int>& members, CommKey key);

}  // namespace tutti
