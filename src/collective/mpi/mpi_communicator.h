#pragma once

#include <memory>

#include "collective/data_plane.h"
#include "collective/host_communicator.h"

namespace tutti::detail {

/// Plain MPI calls on a communicator of our own, made by MPI_Comm_create_group from plane.mpi_parent.
std::unique_ptr<HostCommunicator> make_mpi_communicator(const DataPlane& plane, const std::vector<int>& members, CommKey key);

/// MPI_Comm* of these members with nothing of ours on it; errors are handled as on MPI_COMM_WORLD. Collective among them.
std::shared_ptr<void> make_user_comm(const DataPlane& plane, const std::vector<int>& members, CommKey key);

}  // namespace tutti::detail
