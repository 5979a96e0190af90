#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>
#include <utility>

#include "tutti/distributed.h"
#include "tutti/error.h"

namespace tutti::distributed {
namespace {

constexpr int64_t kMostWorkers = int64_t{1} << 20;

/// @throws UsageError
int64_t workers_of(const Shape& shape) {
  if (shape.empty()) throw UsageError("DeviceMesh: shape () has no dimension; a mesh has at least one, such as (4,)");
  int64_t product = 1;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 1)
      throw UsageError(fmt::format("DeviceMesh: mesh dimension {} of shape {} has {} workers; each has at least 1", dim,
                                   to_string(shape), shape[dim]));
    if (shape[dim] > kMostWorkers / product)
      throw UsageError(fmt::format("DeviceMesh: shape {} has more than {} workers", to_string(shape), kMostWorkers));
    product *= shape[dim];
  }
  return product;
}

bool is_name(std::string_view name) {
  return !name.empty() &&
         std::ranges::all_of(name, [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); });
}

}  // namespace

DeviceMesh::DeviceMesh(Shape shape, std::vector<int64_t> device_ids, std::vector<std::string> names)
    : shape_(std::move(shape)), device_ids_(std::move(device_ids)), names_(std::move(names)) {
  const int64_t workers = workers_of(shape_);
  if (device_ids_.empty()) {
    device_ids_.resize(static_cast<size_t>(workers));
    std::iota(device_ids_.begin(), device_ids_.end(), 0);
  }
  if (size() != workers)
    throw UsageError(fmt::format("DeviceMesh: {} device_ids for shape {}, expected {}, one for each place", size(),
                                 to_string(shape_), workers));
  std::set<int64_t> seen;
  for (const int64_t id : device_ids_) {
    if (id < 0) throw UsageError(fmt::format("DeviceMesh: device id {}; ids are those of workers, from 0", id));
    if (!seen.insert(id).second) throw UsageError(fmt::format("DeviceMesh: worker {} is there twice; each has one place", id));
  }
  if (names_.empty()) return;
  if (names_.size() != shape_.size())
    throw UsageError(fmt::format("DeviceMesh: {} names for {} mesh dimensions", names_.size(), ndim()));
  for (auto name = names_.begin(); name != names_.end(); ++name) {
    if (!is_name(*name))
      throw UsageError(fmt::format("DeviceMesh: '{}' is no name of a mesh dimension; letters, digits and _ are", *name));
    if (std::find(names_.begin(), name, *name) != name)
      throw UsageError(fmt::format("DeviceMesh: two mesh dimensions have the name '{}'", *name));
  }
}

int DeviceMesh::dim(std::string_view name) const {
  const auto at = std::ranges::find(names_, name);
  if (at == names_.end())
    throw UsageError(fmt::format("no mesh dimension is called '{}'; names: {}", name,
                                 names_.empty() ? "none" : fmt::format("{}", fmt::join(names_, ", "))));
  return static_cast<int>(at - names_.begin());
}

int64_t DeviceMesh::worker(const Shape& coordinate) const {
  if (coordinate.size() != shape_.size())
    throw UsageError(fmt::format("a coordinate {} in a mesh of {} dimensions", to_string(coordinate), ndim()));
  int64_t place = 0;
  for (size_t dim = 0; dim < shape_.size(); ++dim) {
    if (coordinate[dim] < 0 || coordinate[dim] >= shape_[dim])
      throw UsageError(
          fmt::format("coordinate {} lies outside of the mesh's shape {}", to_string(coordinate), to_string(shape_)));
    place = place * shape_[dim] + coordinate[dim];
  }
  return device_ids_[static_cast<size_t>(place)];
}

std::optional<Shape> DeviceMesh::coordinate(int64_t id) const {
  const auto at = std::ranges::find(device_ids_, id);
  if (at == device_ids_.end()) return std::nullopt;
  Shape coordinate(shape_.size());
  int64_t place = at - device_ids_.begin();
  for (size_t dim = shape_.size(); dim-- > 0; place /= shape_[dim]) coordinate[dim] = place % shape_[dim];
  return coordinate;
}

std::vector<int> DeviceMesh::peers(int64_t id, int dim) const {
  auto place = coordinate(id);
  if (!place) throw UsageError(fmt::format("worker {} is not in {}", id, to_string(*this)));
  if (dim < 0 || dim >= ndim())
    throw UsageError(fmt::format("mesh dimension {} of {}, which has {}", dim, to_string(*this), ndim()));
  std::vector<int> peers;
  int64_t& index = (*place)[static_cast<size_t>(dim)];
  for (index = 0; index < shape_[static_cast<size_t>(dim)]; ++index) peers.push_back(static_cast<int>(worker(*place)));
  return peers;
}

std::string DeviceMesh::describe_dim(int dim) const {
  return names_.empty() ? fmt::format("mesh dimension {}", dim)
                        : fmt::format("mesh dimension {} ('{}')", dim, names_.at(static_cast<size_t>(dim)));
}

std::string to_string(const DeviceMesh& mesh) {
  const auto& ids = mesh.device_ids();
  const bool is_range = std::ranges::adjacent_find(ids, [](int64_t a, int64_t b) { return b != a + 1; }) == ids.end();
  std::string text = fmt::format("DeviceMesh({}, ", to_string(mesh.shape()));
  text += is_range ? fmt::format("range({}, {})", ids.front(), ids.back() + 1) : fmt::format("[{}]", fmt::join(ids, ", "));
  if (!mesh.names().empty()) text += fmt::format(", names=['{}']", fmt::join(mesh.names(), "', '"));
  return text + ")";
}

}  // namespace tutti::distributed
