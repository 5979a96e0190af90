#include "collective/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collective/mpi/mpi_communicator.h"
#include "collective/node/node_communicator.h"
#include "collective/two_level/two_level_communicator.h"

namespace tutti {
namespace {

using Make = std::unique_ptr<Communicator> (*)(const DataPlane&, const std::vector<int>&, CommKey);

struct BackEnd {
  std::string_view name;
  Make make;
};
constexpr BackEnd kBackEnds[] = {{"mpi", make_mpi_communicator}, {"local", make_node_communicator}};

}  // namespace

Buffer disjoint(Buffer src, Buffer dst, Tensor& copy) {
  const char *s = src.at(0), *d = dst.at(0);
  if (src.count == 0 || dst.count == 0 || s + src.size_bytes() <= d || d + dst.size_bytes() <= s) return src;
  copy = Tensor::empty({src.count}, src.dtype);
  std::memcpy(copy.data(), s, static_cast<size_t>(src.size_bytes()));
  return {copy.data(), src.count, src.dtype};
}

std::string_view compiled_ccl() { return kBackEnds[0].name; }

std::string_view resolve_ccl(std::string_view ccl, const DataPlane& plane, const std::vector<int>& members) {
  const bool on_node =
      plane.node && std::all_of(members.begin(), members.end(), [&](int worker) { return plane.node->has(worker); });
  if (ccl == "auto") return on_node ? "local" : "mpi";
  if (ccl == "mpi" && !plane.mpi_parent) return "local";  // threads and processes: the same thing
  if (ccl == "local" && !on_node)
    throw UsageError("init_ccl: 'local' needs all workers on one node that shares memory; use 'mpi'");
  for (const BackEnd& row : kBackEnds)
    if (row.name == ccl) return row.name;
  std::string names;
  for (const BackEnd& row : kBackEnds) names += (names.empty() ? "" : ", ") + std::string(row.name);
  throw UsageError(fmt::format("init_ccl: no ccl '{}' in this build; it has {} and auto", ccl, names));
}

std::unique_ptr<Communicator> make_communicator(std::string_view ccl, const DataPlane& plane, const std::vector<int>& members,
                                                CommKey key) {
  const std::string_view name = resolve_ccl(ccl, plane, members);
  if (ccl == "auto" && name == "mpi" && has_two_levels(plane, members)) return make_two_level_communicator(plane, members, key);
  for (const BackEnd& row : kBackEnds)
    if (row.name == name) return row.make(plane, members, key);
  throw UsageError("unreachable: resolve_ccl returned an unknown name");
}

}  // namespace tutti
