// MPI handles with one owner, and checked calls. Every communicator we own returns errors instead of aborting.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/handle.h"
#include "tutti/where.h"

namespace tutti::detail {

/// @throws TransportError  the call failed: names it, MPI's text, rank and host
void check_mpi(int code, const char* call, Where where = Where::current());
bool mpi_usable();          ///< initialised and not finalised
std::string mpi_library();  ///< name and version, such as "Open MPI v4.1.4"

struct MpiCommTraits {
  using Raw = MPI_Comm;
  static Raw null() { return MPI_COMM_NULL; }
  static void free(Raw comm) noexcept;  // collective; nothing after MPI_Finalize
};
using MpiComm = UniqueHandle<MpiCommTraits>;

struct MpiTypeTraits {
  using Raw = MPI_Datatype;
  static Raw null() { return MPI_DATATYPE_NULL; }
  static void free(Raw type) noexcept;
};
using MpiType = UniqueHandle<MpiTypeTraits>;

struct MpiGroupTraits {
  using Raw = MPI_Group;
  static Raw null() { return MPI_GROUP_NULL; }
  static void free(Raw group) noexcept;
};
using MpiGroup = UniqueHandle<MpiGroupTraits>;

/// The same ranks on a communicator that has nothing else of `comm` and returns errors. Collective.
MpiComm duplicate(MPI_Comm comm);

/// A communicator of these ranks of `parent`, in this order, that returns errors. Collective among them; what is made for the
/// same key at the same time is told apart by it.
MpiComm create_group(MPI_Comm parent, const std::vector<int>& ranks, uint64_t key);

}  // namespace tutti::detail
