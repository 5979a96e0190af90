#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::detail {

/// Where the ranks of a job are.
struct Nodes {
  std::vector<int32_t> node_of, machine_of;  ///< by rank; nodes are numbered by their first rank
  int machine_cores = 1;                     ///< fewest that the ranks of one machine may use together
  int count() const;
  int ranks_each() const;  ///< when all nodes have equally many, else 0
};

/// Candidates are the ranks of one machine, as MPI sees it; they are a node if all can map the memory of the first.
/// TUTTI_RANKS_PER_NODE=k cuts machines into nodes of k ranks; TUTTI_SHARED_MEMORY=0 makes every rank a node.
/// Binds the ranks, too. Collective.  @throws UsageError, SystemError
Nodes find_nodes(MPI_Comm control, bool owns_mpi, const std::string& bind);

}  // namespace tutti::detail
