#include "distributed/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "distributed/access.h"
#include "tutti/error.h"
#include "tutti/function.h"
#include "tutti/worker.h"

namespace tutti::distributed {
namespace {

std::string said(const TensorStructInfo& tensor) {
  return fmt::format("{} of shape {}", to_string(tensor.dtype), to_string(tensor.shape));
}

/// Extents of an axis along the first mesh dimension that cuts it, each summed up over the others that cut it.
Shape extents_along(size_t dim, size_t axis, const std::vector<TensorStructInfo>& parts, const DeviceMesh& mesh,
                    const std::vector<PlacementSpec>& specs) {
  Shape extents(static_cast<size_t>(mesh.shape()[dim]), 0);
  for (size_t place = 0; place < parts.size(); ++place) {
    const Shape coordinate = *mesh.coordinate(mesh.device_ids()[place]);
    bool counts = true;  // one of those that hold the same rows of it
    for (size_t other = 0; other < specs.size(); ++other)
      if (specs[other].axis() != static_cast<int>(axis) && coordinate[other] != 0) counts = false;
    int64_t& extent = extents[static_cast<size_t>(coordinate[dim])];
    if (counts && __builtin_add_overflow(extent, parts[place].shape[axis], &extent))
      throw UsageError(fmt::format("axis {} of the parts is longer than 2^63 in all", axis));
  }
  return extents;
}

int64_t sum_of(const Shape& extents, size_t axis) {
  int64_t sum = 0;
  for (const int64_t extent : extents)
    if (__builtin_add_overflow(sum, extent, &sum))
      throw UsageError(fmt::format("axis {} of the parts is longer than 2^63 in all", axis));
  return sum;
}

/// By sizes that differ by at most 1, the first ones being larger.
bool is_balanced(const Shape& extents) {
  return std::ranges::is_sorted(extents, std::greater()) && extents.front() - extents.back() <= 1;
}

/// What the workers of the mesh have, on its first one; nothing on the others. All of them ask, in the same command.
std::vector<TensorStructInfo> gather_parts(const Value& value, const DeviceMesh& mesh) {
  if (value.kind() != Value::Kind::kTensor)
    throw UsageError(fmt::format("worker {}'s part is {}, expected a tensor", worker::id(), to_string(value)));
  const auto part = value.as<Tensor>();
  const DType dtype = part.dtype();
  const size_t members = mesh.device_ids().size();
  const Comm comm = worker::comm(std::vector<int>(mesh.device_ids().begin(), mesh.device_ids().end()));
  const bool is_first = comm.rank() == 0;
  Shape mine{dtype.code, dtype.bits, dtype.lanes};
  mine.insert(mine.end(), part.shape().begin(), part.shape().end());
  const Tensor lengths = is_first ? Tensor::empty({static_cast<int64_t>(members)}, kInt64) : Tensor();
  comm.gather(Tensor::from<int64_t>({static_cast<int64_t>(mine.size())}), lengths);
  std::vector<int64_t> counts;
  if (is_first) counts.assign(lengths.values<int64_t>().begin(), lengths.values<int64_t>().end());
  const Tensor all = is_first ? Tensor::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, kInt64) : Tensor();
  comm.gather(Tensor::from<int64_t>(mine), all, 0, counts);
  std::vector<TensorStructInfo> parts;
  const int64_t* next = is_first ? all.values<int64_t>().data() : nullptr;
  for (const int64_t count : counts) {
    parts.push_back({Shape(next + 3, next + count),
                     {static_cast<uint8_t>(next[0]), static_cast<uint8_t>(next[1]), static_cast<uint16_t>(next[2])}});
    next += count;
  }
  return parts;
}

/// runtime.disco.join_parts: what the tensor is, on the first worker of the mesh, which throws if there is none.
Value join_parts(const Value& part, const List& mesh_values, const std::string& placement) {
  const DeviceMesh mesh = to_mesh(mesh_values);
  if (!mesh.coordinate(worker::id())) return {};
  const auto parts = gather_parts(part, mesh);
  return parts.empty() ? Value() : Value(to_values(join(parts, mesh, Placement::from_text(placement))));
}

}  // namespace

DTensorStructInfo join(const std::vector<TensorStructInfo>& parts, const DeviceMesh& mesh, const Placement& placement) {
  TensorStructInfo whole = parts.front();
  std::vector<PlacementSpec> specs = placement.dim_specs();
  const size_t ndim = whole.shape.size();
  for (size_t place = 0; place < parts.size(); ++place)
    if (parts[place].dtype != whole.dtype || parts[place].shape.size() != ndim)
      throw UsageError(fmt::format("worker {}'s part is {}, worker {}'s is {}; a tensor has one dtype and one number of axes",
                                   mesh.device_ids().front(), said(whole), mesh.device_ids()[place], said(parts[place])));
  std::vector<bool> is_cut(ndim, false);
  for (size_t dim = 0; dim < std::min(specs.size(), mesh.shape().size()); ++dim) {
    const auto axis = static_cast<size_t>(specs[dim].axis());
    if (!specs[dim].cuts() || axis >= ndim || is_cut[axis]) continue;  // what is wrong with them is told below
    is_cut[axis] = true;
    const Shape extents = extents_along(dim, axis, parts, mesh, specs);
    whole.shape[axis] = sum_of(extents, axis);
    if (specs[dim].kind() == PlacementSpecKind::kSharding && !is_balanced(extents))
      specs[dim] = PlacementSpec::ragged(static_cast<int>(axis), extents);
  }
  DTensorStructInfo info(whole, mesh, Placement(std::move(specs)));
  for (size_t place = 0; place < parts.size(); ++place) {
    const int64_t worker = mesh.device_ids()[place];
    if (const Shape expected = info.local(worker).shape; parts[place].shape != expected)
      throw UsageError(fmt::format("worker {}'s part is {}, expected shape {}: with the parts of the others the tensor is {}",
                                   worker, said(parts[place]), to_string(expected), to_string(info)));
  }
  return info;
}

Tensor checked_part(const Value& value, const DTensorStructInfo& info, std::string_view function) {
  const Block expected = info.local(worker::id());
  Tensor part = value.kind() == Value::Kind::kTensor ? value.as<Tensor>() : Tensor();
  if (part && part.dtype() == info.tensor_sinfo().dtype && part.shape() == expected.shape) return part;
  throw UsageError(fmt::format("{}{}worker {}'s part of {} is {}, expected {}", function, function.empty() ? "" : ": ",
                               worker::id(), to_string(info), part ? said({part.shape(), part.dtype()}) : to_string(value),
                               said({expected.shape, info.tensor_sinfo().dtype})));
}

DRef issue_join(const DRef& parts, const DeviceMesh& mesh, const Placement& placement, Where where) {
  return Access::controller(parts, "from_local")
      .call_builtin("join_parts", List{parts, to_values(mesh), to_string(placement)}, where);
}

DTensorStructInfo joined_info(const DRef& joined, const DeviceMesh& mesh, Timeout timeout, Where where) {
  Access::controller(joined, "from_local").sync(detail::kAllWorkers, timeout, where);  // so that all errors come at once
  return to_info(joined.debug_get_from_remote(static_cast<int>(mesh.device_ids().front()), timeout, where));
}

void register_join() { register_global_func("runtime.disco.join_parts", join_parts, {.override_existing = true}); }

}  // namespace tutti::distributed
