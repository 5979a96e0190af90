// The back ends by their names.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "collective/communicator.h"
#include "collective/making.h"
#include "collective/reduce.h"

namespace tutti::detail {

/// A row of the table of back ends.
struct Ccl {
  std::string_view name;
  int32_t device_type;  ///< of the memory that it moves; work on other memory than the host's is under way after start()
  std::unique_ptr<Communicator> (*make)(const Making&);  ///< of devices: fails on all members or on none
  bool (*reduces)(DType, ReduceOp) = can_reduce;
  bool pairs_by_world = false;  ///< kSendRecv is started on the communicator of all workers; else each pair has its own
  bool starts_alone = false;    ///< start() needs no arrivals, but for parts: the members announce what they start
  void (*check)(int32_t device_type) = nullptr;  ///< @throws SystemError  this machine lacks something that it needs
};

/// "local" (one node only), "mpi" (without an MPI job: local), "auto" (local among members on one node, over several nodes MPI,
/// by two levels where each node has as many members).
/// @throws UsageError  unknown name, not in this build, or not possible here
const Ccl& find_ccl(std::string_view name, const DataPlane& plane, const std::vector<int>& members);
std::span<const Ccl> ccls_of_gpus();  ///< what init_ccl("auto") tries first, in this order
/// One more row, of a back end that a test brings. Before the first session.
void add_ccl(const Ccl& row);
std::string_view compiled_ccl();  ///< "mpi": the name that init_ccl takes in every kind of session

}  // namespace tutti::detail
