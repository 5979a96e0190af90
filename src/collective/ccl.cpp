#include "collective/ccl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collective/mpi/mpi_communicator.h"
#include "collective/nccl/nccl_communicator.h"
#include "collective/node/node_communicator.h"
#include "collective/two_level/two_level_communicator.h"

namespace tutti::detail {
namespace {

constexpr auto make_mpi = [](const Making& m) -> std::unique_ptr<Communicator> {
  return make_mpi_communicator(m.plane, m.members, m.key);
};
constexpr auto make_local = [](const Making& m) -> std::unique_ptr<Communicator> {
  return make_node_communicator(m.plane, m.members);
};
constexpr auto make_auto = [](const Making& m) -> std::unique_ptr<Communicator> {
  if (has_two_levels(m.plane, m.members)) return make_two_level_communicator(m.plane, m.members, m.key);
  return make_mpi_communicator(m.plane, m.members, m.key);
};

constexpr Ccl kMpi{"mpi", dl::kCPU, make_mpi};
constexpr Ccl kLocal{"local", dl::kCPU, make_local};
constexpr Ccl kAuto{"auto", dl::kCPU, make_auto};  // over several nodes; on one it is local
constexpr Ccl kOfGpus[] = {{"nccl", dl::kCUDA, make_nccl_communicator, nccl_reduces, true, true, check_nccl},
                           {"rccl", dl::kROCM, make_nccl_communicator, nccl_reduces, true, true, check_nccl}};

std::vector<Ccl>& added() {
  static std::vector<Ccl> rows;
  return rows;
}

}  // namespace

std::span<const Ccl> ccls_of_gpus() { return kOfGpus; }

void add_ccl(const Ccl& row) { added().push_back(row); }

std::string_view compiled_ccl() { return kMpi.name; }

const Ccl& find_ccl(std::string_view name, const DataPlane& plane, const std::vector<int>& members) {
  const auto on_node = [&] {
    return plane.node && std::all_of(members.begin(), members.end(), [&](int worker) { return plane.node->has(worker); });
  };
  if (name == kAuto.name) return on_node() ? kLocal : kAuto;
  if (name == kMpi.name) return plane.mpi_parent ? kMpi : kLocal;  // threads and processes: the same thing
  if (name == kLocal.name) {
    if (on_node()) return kLocal;
    throw UsageError("init_ccl: 'local' needs all workers on one node that shares memory; use 'mpi'");
  }
  std::vector<std::string_view> names{kMpi.name, kLocal.name};
  for (const std::span<const Ccl> rows : {std::span<const Ccl>(kOfGpus), std::span<const Ccl>(added())})
    for (const Ccl& row : rows) {
      if (row.name == name) return row;
      names.push_back(row.name);
    }
  throw UsageError(fmt::format("init_ccl: no ccl '{}' in this build; it has {} and auto", name, fmt::join(names, ", ")));
}

}  // namespace tutti::detail
