#include "collective/mpi/mpi_handles.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/env.h"
#include "tutti/error.h"

namespace tutti::detail {

bool mpi_usable() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised && !finalised;
}

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string name(text, static_cast<size_t>(length));
  name.resize(std::min(name.size(), name.find_first_of(",\n")));  // one line, without the packager
  std::replace(name.begin(), name.end(), '\t', ' ');
  return name;
}

void check_mpi(int code, const char* call, Where where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "?";
  int length = 0, rank = -1;
  MPI_Error_string(code, text, &length);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  throw TransportError(fmt::format("[rank {} {}] {} failed at {}:{}: {}; the session is over", rank, host_name(), call,
                                   where.file, where.line, text));
}

void MpiCommTraits::free(MPI_Comm comm) noexcept {
  if (mpi_usable()) MPI_Comm_free(&comm);
}
void MpiTypeTraits::free(MPI_Datatype type) noexcept {
  if (mpi_usable()) MPI_Type_free(&type);
}
void MpiGroupTraits::free(MPI_Group group) noexcept {
  if (mpi_usable()) MPI_Group_free(&group);
}

MpiComm duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  check_mpi(MPI_Comm_split(comm, 0, rank, &copy), "MPI_Comm_split");  // MPI_Comm_dup would copy the caller's attributes and hints
  MpiComm owned(copy);
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return owned;
}

MpiComm create_group(MPI_Comm parent, const std::vector<int>& ranks, uint64_t key) {
  MPI_Group all = MPI_GROUP_NULL, mine = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(parent, &all), "MPI_Comm_group");
  MpiGroup all_owned(all);
  check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &mine), "MPI_Group_incl");
  MpiGroup mine_owned(mine);
  MPI_Comm comm = MPI_COMM_NULL;
  const int tag = static_cast<int>((key ^ (key >> 24) ^ (key >> 51)) % 16384);
  check_mpi(MPI_Comm_create_group(parent, mine, tag, &comm), "MPI_Comm_create_group");
  MpiComm owned(comm);
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return owned;
}

}  // namespace tutti::detail
