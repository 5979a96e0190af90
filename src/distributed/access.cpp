#include "distributed/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tutti/error.h"

namespace tutti::distributed {
namespace {

const List& list_of(const Value& values, size_t count, const char* what) {
  const auto* list = std::get_if<List>(&values.data());
  if (!list || list->size() != count)
    throw UsageError(fmt::format("{}: expected {} values, got {}", what, count, to_string(values)));
  return *list;
}

}  // namespace

detail::Controller& Access::controller(const DRef& ref, const char* what) {
  if (!ref.state_) throw UsageError(fmt::format("{}: the DRef is empty", what));
  return *ref.state_->controller;
}

void check_workers(const DeviceMesh& mesh, const detail::Controller& controller) {
  const int64_t last = std::ranges::max(mesh.device_ids());
  const int workers = controller.layout().num_workers;
  if (last >= workers)
    throw UsageError(fmt::format("worker {} of {} is not in this session, which has {} workers", last, to_string(mesh), workers));
}

void check_entries(const Placement& placement, const DeviceMesh& mesh, const std::string& what) {
  const auto& specs = placement.dim_specs();
  if (static_cast<int>(specs.size()) != mesh.ndim())
    throw UsageError(fmt::format("{} is '{}', which has {} entries, but the mesh has {} dimensions; give one for each", what,
                                 to_string(placement), specs.size(), mesh.ndim()));
  for (size_t dim = 0; dim < specs.size(); ++dim)
    if (specs[dim].kind() == PlacementSpecKind::kRagged && std::ssize(specs[dim].sizes()) != mesh.shape()[dim])
      throw UsageError(fmt::format("{}: {} has {} workers, but '{}' has {} sizes", what, mesh.describe_dim(static_cast<int>(dim)),
                                   mesh.shape()[dim], to_string(specs[dim]), specs[dim].sizes().size()));
}

List to_values(const DeviceMesh& mesh) {
  return {mesh.shape(), Shape(mesh.device_ids()), List(mesh.names().begin(), mesh.names().end())};
}

DeviceMesh to_mesh(const Value& values) {
  const List& list = list_of(values, 3, "a mesh");
  std::vector<std::string> names;
  for (const Value& name : list[2].as<List>()) names.push_back(name.as<std::string>());
  return DeviceMesh(list[0].as<Shape>(), list[1].as<Shape>(), std::move(names));
}

List to_values(const DTensorStructInfo& info) {
  return {info.tensor_sinfo().shape, info.tensor_sinfo().dtype, to_values(info.device_mesh()), to_string(info.placement())};
}

DTensorStructInfo to_info(const Value& values) {
  const List& list = list_of(values, 4, "a DTensorStructInfo");
  return {{list[0].as<Shape>(), list[1].as<DType>()}, to_mesh(list[2]), Placement::from_text(list[3].as<std::string>())};
}

}  // namespace tutti::distributed
