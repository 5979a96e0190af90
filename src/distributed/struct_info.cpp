#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "collective/reduce.h"
#include "tutti/distributed.h"
#include "tutti/error.h"
#include "tutti/worker.h"

namespace tutti::distributed {
namespace {

struct Part {
  int64_t offset, size;
};

/// Of `parts` whose sizes differ by at most 1; the first ones are the larger.
Part balanced(int64_t size, int64_t parts, int64_t index) {
  const int64_t least = size / parts, larger = size % parts;
  return {index * least + std::min(index, larger), least + (index < larger ? 1 : 0)};
}

Part part_of(const PlacementSpec& spec, int64_t size, int64_t parts, int64_t index) {
  if (spec.kind() != PlacementSpecKind::kRagged) return balanced(size, parts, index);
  return {std::accumulate(spec.sizes().begin(), spec.sizes().begin() + index, int64_t{0}),
          spec.sizes()[static_cast<size_t>(index)]};
}

/// @throws UsageError  the sizes are not those of this axis
void check_ragged(const DTensorStructInfo& info, size_t dim, const std::string& who) {
  const auto& specs = info.placement().dim_specs();
  const PlacementSpec& spec = specs[dim];
  const int64_t workers = info.device_mesh().shape()[dim], extent = info.tensor_sinfo().shape[static_cast<size_t>(spec.axis())];
  if (static_cast<int64_t>(spec.sizes().size()) != workers)
    throw UsageError(fmt::format("{} has {} workers, but '{}' has {} sizes", who, workers, to_string(spec), spec.sizes().size()));
  int64_t left = extent;
  for (const int64_t size : spec.sizes()) left = size > left ? -1 : left - size;  // no sum: it may not fit
  if (left != 0)
    throw UsageError(
        fmt::format("{}: the sizes of '{}' are not axis {}, which has {}", who, to_string(spec), spec.axis(), extent));
  for (size_t earlier = 0; earlier < dim; ++earlier)
    if (specs[earlier].axis() == spec.axis())
      throw UsageError(
          fmt::format("{} cuts axis {} into parts of given sizes, but mesh dimension {} cuts it before; only the first "
                      "that cuts an axis may give sizes",
                      who, spec.axis(), earlier));
}

}  // namespace

DTensorStructInfo::DTensorStructInfo(TensorStructInfo tensor_sinfo, DeviceMesh device_mesh, Placement placement)
    : tensor_sinfo_(std::move(tensor_sinfo)), device_mesh_(std::move(device_mesh)), placement_(std::move(placement)) {
  size_bytes(tensor_sinfo_.shape, tensor_sinfo_.dtype);
  const auto& specs = placement_.dim_specs();
  if (static_cast<int>(specs.size()) != device_mesh_.ndim())
    throw UsageError(fmt::format("placement '{}' has {} entries, but the mesh has {} dimensions; give one for each",
                                 to_string(placement_), specs.size(), device_mesh_.ndim()));
  const size_t ndim = tensor_sinfo_.shape.size();
  for (size_t dim = 0; dim < specs.size(); ++dim) {
    const PlacementSpec& spec = specs[dim];
    const std::string who = device_mesh_.describe_dim(static_cast<int>(dim));
    if (spec.cuts() && static_cast<size_t>(spec.axis()) >= ndim)
      throw UsageError(fmt::format("{} cuts axis {}, but a tensor of shape {} has {} axes, which count from 0", who, spec.axis(),
                                   to_string(tensor_sinfo_.shape), ndim));
    if (spec.kind() == PlacementSpecKind::kRagged) check_ragged(*this, dim, who);
    if (spec.kind() == PlacementSpecKind::kPartial && !detail::can_reduce(tensor_sinfo_.dtype, parse_reduce_op(spec.op())))
      throw UsageError(fmt::format("{}: '{}' of {} can't be reduced", who, to_string(spec), to_string(tensor_sinfo_.dtype)));
  }
}

Block DTensorStructInfo::local(int64_t worker) const {
  const auto coordinate = device_mesh_.coordinate(worker);
  if (!coordinate) throw UsageError(fmt::format("worker {} is not in {}", worker, to_string(device_mesh_)));
  Block block{Shape(tensor_sinfo_.shape.size(), 0), tensor_sinfo_.shape};
  for (size_t dim = 0; dim < placement_.dim_specs().size(); ++dim) {
    const PlacementSpec& spec = placement_.dim_specs()[dim];
    if (!spec.cuts()) continue;
    const auto axis = static_cast<size_t>(spec.axis());
    const Part part = part_of(spec, block.shape[axis], device_mesh_.shape()[dim], (*coordinate)[dim]);
    block.offset[axis] += part.offset;
    block.shape[axis] = part.size;
  }
  return block;
}

std::string to_string(const DTensorStructInfo& info) {
  return fmt::format("{} {} by '{}' on {}", to_string(info.tensor_sinfo().dtype), to_string(info.tensor_sinfo().shape),
                     to_string(info.placement()), to_string(info.device_mesh()));
}

std::string show(const DTensorStructInfo& info) {
  std::vector<std::array<std::string, 5>> rows{{"worker", "place", "shape", "offset", "bytes"}};
  for (const int64_t worker : info.device_mesh().device_ids()) {
    const Block block = info.local(worker);
    rows.push_back({std::to_string(worker), to_string(*info.device_mesh().coordinate(worker)), to_string(block.shape),
                    to_string(block.offset), std::to_string(size_bytes(block.shape, info.tensor_sinfo().dtype))});
  }
  std::array<size_t, 5> widths{};
  for (const auto& row : rows)
    for (size_t column = 0; column < row.size(); ++column) widths[column] = std::max(widths[column], row[column].size());
  std::string text = to_string(info) + "\n";
  for (const auto& row : rows) {
    for (size_t column = 0; column + 1 < row.size(); ++column) text += fmt::format("{:<{}}  ", row[column], widths[column]);
    text += row.back() + "\n";
  }
  return text;
}

}  // namespace tutti::distributed
