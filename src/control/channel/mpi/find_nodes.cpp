#include "control/channel/mpi/find_nodes.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <random>
#include <thread>

#include "collective/mpi/mpi_handles.h"
#include "control/channel/mpi/place_ranks.h"
#include "core/log.h"
#include "core/settings.h"
#include "core/shared_memory.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;

struct ProbeAddress {
  int64_t pid;
  int32_t fd;
  uint64_t token;
};

/// How many cores the ranks of a machine may use, each some of them.
int cores_together(MPI_Comm machine) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  int known = sched_getaffinity(0, sizeof cores, &cores) == 0, count = 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, machine), "MPI_Allreduce");
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &known, 1, MPI_INT, MPI_MIN, machine), "MPI_Allreduce");
  count = known ? CPU_COUNT(&cores) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(count, 1);
}

}  // namespace

Nodes find_nodes(MPI_Comm control, bool owns_mpi, const std::string& bind) {
  int rank = 0, size = 1;
  MPI_Comm_rank(control, &rank);
  MPI_Comm_size(control, &size);
  Nodes nodes;
  MPI_Comm machine_raw = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(control, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine_raw), "MPI_Comm_split_type");
  MpiComm machine(machine_raw);
  check_mpi(MPI_Comm_set_errhandler(machine_raw, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int local_rank = 0, local_size = 1, first = rank;
  MPI_Comm_rank(machine_raw, &local_rank);
  MPI_Comm_size(machine_raw, &local_size);
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, machine_raw), "MPI_Bcast");

  // what can fail on one rank alone comes first: the others must not wait for it
  SharedMemory probe;  // a random token of the first one, read by all
  ProbeAddress address{};
  int shared = 1, per_node = local_size;
  auto binding = topology::Binding::kNone;
  std::exception_ptr failure;
  try {
    read_settings();
    const Settings& told = settings();
    shared = told.shared_memory;
    if (told.ranks_per_node) per_node = static_cast<int>(told.ranks_per_node);
    if (owns_mpi || !told.bind.empty())
      binding = topology::parse_binding(
          told.bind.empty() ? bind : told.bind);  // other programs' threads are their own, unless the user says so
    if (local_rank == 0) {
      probe = SharedMemory::create(4096);
      address = {getpid(), probe.fd(), std::random_device{}() | (uint64_t{std::random_device{}()} << 32)};
      std::memcpy(probe.data(), &address.token, sizeof address.token);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  int failed = failure ? rank : size;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, control), "MPI_Allreduce");
  if (failure) std::rethrow_exception(failure);
  if (failed < size) {
    std::this_thread::sleep_for(500ms);  // the first rank that ends may end all: it is to have said why before
    throw SystemError(fmt::format("rank {} can't join the job; it says why", failed));
  }
  check_mpi(MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, machine_raw), "MPI_Bcast");
  if (shared && local_rank != 0) try {
      const SharedMemory peer = SharedMemory::open(static_cast<pid_t>(address.pid), address.fd);
      shared = peer.size_bytes() == 4096 && std::memcmp(peer.data(), &address.token, sizeof address.token) == 0;
    } catch (const SystemError& error) {
      log(LogLevel::kInfo, "no shared memory with rank {}: {}; every rank becomes a node of its own", first, error.what());
      shared = 0;
    }
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &shared, 1, MPI_INT, MPI_MIN, machine_raw), "MPI_Allreduce");
  auto agreed = static_cast<int>(binding);  // programs of one job may differ; nothing, if anybody wants nothing
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &agreed, 1, MPI_INT, MPI_MAX, machine_raw), "MPI_Allreduce");
  place_ranks(machine_raw, static_cast<topology::Binding>(agreed));
  nodes.machine_cores = cores_together(machine_raw);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &nodes.machine_cores, 1, MPI_INT, MPI_MIN, control), "MPI_Allreduce");
  const int mine[2] = {shared ? first + (local_rank / per_node) * (size + 1) : -1 - rank, first};
  std::vector<int> all(2 * static_cast<size_t>(size));
  check_mpi(MPI_Allgather(mine, 2, MPI_INT, all.data(), 2, MPI_INT, control), "MPI_Allgather");

  std::vector<int> names;  // nodes are numbered by their first rank
  for (int r = 0; r < size; ++r) {
    const int name = all[2 * static_cast<size_t>(r)];
    auto it = std::find(names.begin(), names.end(), name);
    nodes.node_of.push_back(static_cast<int32_t>(it - names.begin()));
    if (it == names.end()) names.push_back(name);
    nodes.machine_of.push_back(all[2 * static_cast<size_t>(r) + 1]);
  }
  return nodes;
}

int Nodes::count() const { return 1 + *std::max_element(node_of.begin(), node_of.end()); }

int Nodes::ranks_each() const {
  const auto on_first = std::count(node_of.begin(), node_of.end(), 0);
  for (int node = 0; node < count(); ++node)
    if (std::count(node_of.begin(), node_of.end(), node) != on_first) return 0;
  return static_cast<int>(on_first);
}

}  // namespace tutti::detail
