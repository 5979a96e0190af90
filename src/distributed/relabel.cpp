#include <algorithm>
#include <limits>
#include <numeric>

#include "distributed/transition.h"

namespace tutti::distributed {
namespace {

using Matrix = std::vector<Shape>;  // rows of numbers

/// For each row a column, each once, with the largest sum of values: the Hungarian method, with potentials of rows and columns.
std::vector<size_t> assign(const Matrix& values) {
  const size_t n = values.size();
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  Shape row_potential(n, 0), column_potential(n + 1, 0);
  std::vector<size_t> row_of(n + 1, kNone);  // of columns; the last one stands for the row that looks for its column
  for (size_t row = 0; row < n; ++row) {
    Shape slack(n, std::numeric_limits<int64_t>::max());
    std::vector<size_t> before(n, n);  // the column before, on the way there
    std::vector<bool> seen(n + 1, false);
    size_t column = n;
    row_of[n] = row;
    while (row_of[column] != kNone) {
      seen[column] = true;
      const size_t from = row_of[column];
      int64_t least = std::numeric_limits<int64_t>::max();
      size_t next = n;
      for (size_t other = 0; other < n; ++other) {
        if (seen[other]) continue;
        const int64_t reduced = -values[from][other] - row_potential[from] - column_potential[other];
        if (reduced < slack[other]) slack[other] = reduced, before[other] = column;
        if (slack[other] < least) least = slack[other], next = other;
      }
      for (size_t other = 0; other <= n; ++other) {
        if (seen[other]) row_potential[row_of[other]] += least, column_potential[other] -= least;
        else if (other < n) slack[other] -= least;
      }
      column = next;
    }
    while (column != n) {
      row_of[column] = row_of[before[column]];
      column = before[column];
    }
  }
  std::vector<size_t> column_of(n);
  for (size_t column = 0; column < n; ++column) column_of[row_of[column]] = column;
  return column_of;
}

bool has_partial(const DTensorStructInfo& info) {
  return std::ranges::any_of(info.placement().dim_specs(),
                             [](const PlacementSpec& spec) { return spec.kind() == PlacementSpecKind::kPartial; });
}

}  // namespace

DeviceMesh relabelled(const DTensorStructInfo& from, const DTensorStructInfo& to) {
  check_transition(from, to);
  const DeviceMesh& mesh = to.device_mesh();
  if (has_partial(from) || has_partial(to)) return mesh;
  const std::vector<int64_t>& ids = mesh.device_ids();
  Matrix kept(ids.size(), Shape(ids.size(), 0));  // elements, by worker and by the place that it would have
  for (size_t worker = 0; worker < ids.size(); ++worker) {
    if (!from.device_mesh().coordinate(ids[worker])) continue;
    const Block held = from.local(ids[worker]);
    for (size_t place = 0; place < ids.size(); ++place)
      if (const auto block = intersection(held, to.local(ids[place]))) kept[worker][place] = element_count(*block);
  }
  const std::vector<size_t> place_of = assign(kept);
  int64_t now = 0, then = 0;
  for (size_t worker = 0; worker < ids.size(); ++worker) now += kept[worker][worker], then += kept[worker][place_of[worker]];
  if (now == then) return mesh;
  std::vector<int64_t> order(ids.size());
  for (size_t worker = 0; worker < ids.size(); ++worker) order[place_of[worker]] = ids[worker];
  return DeviceMesh(mesh.shape(), order, mesh.names());
}

}  // namespace tutti::distributed
