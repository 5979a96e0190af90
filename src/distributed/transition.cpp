#include "distributed/transition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "tutti/error.h"

namespace tutti::distributed {
namespace {

constexpr int64_t kMessageCost = 4096;  // bytes that take as long as a message

bool is_partial(const PlacementSpec& spec) { return spec.kind() == PlacementSpecKind::kPartial; }

/// The workers that hold the same values: those along the dimensions that replicate.
struct Holders {
  Block block;
  std::vector<int64_t> workers;
  Shape kept;  // coordinates along the partial dimensions that stay partial
};

/// By the coordinates along the dimensions that cut, then those along the partial ones: so the addends of a block follow each
/// other.
using Sources = std::map<std::pair<Shape, Shape>, Holders>;

/// Whether a mesh dimension is partial before and after: nothing is reduced along it.
std::vector<bool> kept_dims(const DTensorStructInfo& from, const DTensorStructInfo& to) {
  const auto& before = from.placement().dim_specs();
  const auto& after = to.placement().dim_specs();
  std::vector<bool> kept(before.size(), false);
  if (from.device_mesh().shape() == to.device_mesh().shape() && from.device_mesh().device_ids() == to.device_mesh().device_ids())
    for (size_t dim = 0; dim < before.size(); ++dim) kept[dim] = is_partial(before[dim]) && before[dim] == after[dim];
  return kept;
}

Sources sources_of(const DTensorStructInfo& from, const std::vector<bool>& kept) {
  Sources sources;
  for (const int64_t worker : from.device_mesh().device_ids()) {
    const Shape coordinate = *from.device_mesh().coordinate(worker);
    Shape cut, partial, stays;
    for (size_t dim = 0; dim < coordinate.size(); ++dim) {
      const PlacementSpec& spec = from.placement().dim_specs()[dim];
      if (spec.cuts()) cut.push_back(coordinate[dim]);
      if (is_partial(spec)) partial.push_back(coordinate[dim]);
      if (kept[dim]) stays.push_back(coordinate[dim]);
    }
    Holders& holders = sources[{cut, partial}];
    if (holders.workers.empty()) holders.block = from.local(worker), holders.kept = stays;
    holders.workers.push_back(worker);
  }
  return sources;
}

/// Along a new partial dimension the first worker has the value, and the others what changes no sum or product; min and max of
/// the same value everywhere are that value.
bool is_neutral(const DTensorStructInfo& to, const Shape& coordinate, const std::vector<bool>& kept) {
  for (size_t dim = 0; dim < coordinate.size(); ++dim) {
    const PlacementSpec& spec = to.placement().dim_specs()[dim];
    const bool is_new = is_partial(spec) && (dim >= kept.size() || !kept[dim]);
    if (is_new && coordinate[dim] > 0 && (spec.op() == "sum" || spec.op() == "prod")) return true;
  }
  return false;
}

Shape coordinates_along(const Shape& coordinate, const std::vector<bool>& dims) {
  Shape some;
  for (size_t dim = 0; dim < dims.size(); ++dim)
    if (dims[dim]) some.push_back(coordinate[dim]);
  return some;
}

bool is_ragged(const std::vector<PlacementSpec>& specs, int axis) {
  return std::ranges::any_of(
      specs, [&](const PlacementSpec& spec) { return spec.kind() == PlacementSpecKind::kRagged && spec.axis() == axis; });
}

/// The longest axis of a part, of those that may be cut further: sizes that are given are those of the first cut.
std::optional<int> axis_to_cut(const DTensorStructInfo& info) {
  const Shape local = info.local(info.device_mesh().device_ids().front()).shape;
  std::optional<int> longest;
  for (int axis = 0; axis < static_cast<int>(local.size()); ++axis) {
    if (!is_ragged(info.placement().dim_specs(), axis) &&
        (!longest || local[static_cast<size_t>(axis)] > local[static_cast<size_t>(*longest)]))
      longest = axis;
  }
  return longest;
}

/// With each partial dimension that does not stay partial cutting an axis instead: the target's, or the longest. Nothing: there
/// is no axis to cut.
std::optional<DTensorStructInfo> reduced_by_parts(const DTensorStructInfo& from, const DTensorStructInfo& to) {
  const std::vector<bool> kept = kept_dims(from, to);
  std::vector<PlacementSpec> specs = from.placement().dim_specs();
  const bool is_same_mesh = from.device_mesh().shape() == to.device_mesh().shape();
  const auto longest = axis_to_cut(from);
  if (!longest) return std::nullopt;
  for (size_t dim = 0; dim < specs.size(); ++dim) {
    if (!is_partial(specs[dim]) || kept[dim]) continue;
    const PlacementSpec* wanted = is_same_mesh ? &to.placement().dim_specs()[dim] : nullptr;
    const bool takes_wanted = wanted && wanted->kind() == PlacementSpecKind::kSharding && !is_ragged(specs, wanted->axis());
    specs[dim] = PlacementSpec::sharding(takes_wanted ? wanted->axis() : *longest);
  }
  return DTensorStructInfo(from.tensor_sinfo(), from.device_mesh(), Placement(std::move(specs)));
}

/// Of the worker that is at work longest.
double cost(const std::vector<Transition>& steps) {
  double sum = 0;
  for (const Transition& step : steps) {
    const auto traffic = step.traffic();
    sum += static_cast<double>(traffic.most) + kMessageCost * static_cast<double>(traffic.most_messages);
  }
  return sum;
}

}  // namespace

int64_t saturated_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

int64_t element_count(const Block& block) { return tutti::element_count(block.shape); }

std::optional<Block> intersection(const Block& a, const Block& b) {
  Block common{Shape(a.shape.size()), Shape(a.shape.size())};
  for (size_t axis = 0; axis < a.shape.size(); ++axis) {
    common.offset[axis] = std::max(a.offset[axis], b.offset[axis]);
    common.shape[axis] = std::min(a.offset[axis] + a.shape[axis], b.offset[axis] + b.shape[axis]) - common.offset[axis];
    if (common.shape[axis] <= 0) return std::nullopt;
  }
  return common;
}

Transition::Traffic Transition::traffic() const {
  Traffic traffic;
  std::set<std::pair<int64_t, int64_t>> pairs;
  std::map<int64_t, int64_t> sent, received;
  for (const Move& move : moves) {
    if (move.to == move.from) continue;
    const int64_t bytes = element_count(move.block) * from.tensor_sinfo().dtype.size_bytes();
    traffic.bytes = saturated_sum(traffic.bytes, bytes);
    pairs.insert({move.from, move.to});
    for (int64_t* of : {&sent[move.from], &received[move.to]})
      traffic.most = std::max(traffic.most, *of = saturated_sum(*of, bytes));
  }
  traffic.messages = static_cast<int64_t>(pairs.size());
  std::map<int64_t, int64_t> to_others, from_others;
  for (const auto& [from_worker, to_worker] : pairs)
    for (int64_t* of : {&to_others[from_worker], &from_others[to_worker]})
      traffic.most_messages = std::max(traffic.most_messages, ++*of);
  return traffic;
}

void check_transition(const DTensorStructInfo& from, const DTensorStructInfo& to) {
  if (from.tensor_sinfo() != to.tensor_sinfo())
    throw UsageError(fmt::format("redistribute: from {} to {}: not the same tensor", to_string(from), to_string(to)));
  const std::vector<bool> kept = kept_dims(from, to);
  const auto& before = from.placement().dim_specs();
  const auto& after = to.placement().dim_specs();
  const bool reduces_some = std::ranges::find(kept, true) != kept.end() && [&] {
    for (size_t dim = 0; dim < before.size(); ++dim)
      if (is_partial(before[dim]) && !kept[dim]) return true;
    return false;
  }();
  for (size_t dim = 0; dim < after.size(); ++dim) {
    if (!is_partial(after[dim])) continue;
    const bool is_new = dim >= kept.size() || !kept[dim];
    if (after[dim].op() == "avg" && (is_new || reduces_some))
      throw UsageError(
          fmt::format("redistribute: '{}' to '{}': an average of values, or of averages, is rounded again; reduce all of "
                      "it, or use 'P' and divide",
                      to_string(from.placement()), to_string(to.placement())));
    if (after[dim].op() == "prod" && is_new && from.tensor_sinfo().dtype.code == dl::kComplex)
      throw UsageError(fmt::format("redistribute: to '{}': complex numbers times 1 are not always themselves; use 'P'",
                                   to_string(to.placement())));
  }
}

DTensorStructInfo without_partial(const DTensorStructInfo& info) {
  std::vector<PlacementSpec> specs = info.placement().dim_specs();
  for (PlacementSpec& spec : specs)
    if (spec.kind() == PlacementSpecKind::kPartial) spec = PlacementSpec::replica();
  return {info.tensor_sinfo(), info.device_mesh(), Placement(std::move(specs))};
}

Transition transition(const DTensorStructInfo& from, const DTensorStructInfo& to) {
  Transition result{from, to, {}, 1, {}};
  const std::vector<bool> kept = kept_dims(from, to);
  for (size_t dim = 0; dim < kept.size(); ++dim)
    if (is_partial(from.placement().dim_specs()[dim]) && !kept[dim]) result.addends *= from.device_mesh().shape()[dim];
  const Sources sources = sources_of(from, kept);
  std::map<int64_t, int64_t> sent;  // elements, by worker: of several that hold a block the one that has sent least sends it
  for (const int64_t worker : to.device_mesh().device_ids()) {
    const Shape coordinate = *to.device_mesh().coordinate(worker);
    if (is_neutral(to, coordinate, kept)) {
      result.neutral.push_back(worker);
      continue;
    }
    const Block wanted = to.local(worker);
    const Shape mine = coordinates_along(coordinate, kept);
    for (const auto& [key, holders] : sources) {
      if (holders.kept != mine) continue;
      const auto block = intersection(wanted, holders.block);
      if (!block) continue;
      const bool has_it = std::ranges::find(holders.workers, worker) != holders.workers.end();
      const int64_t sender = has_it ? worker : *std::ranges::min_element(holders.workers, {}, [&](int64_t w) { return sent[w]; });
      if (!has_it) sent[sender] += element_count(*block);
      result.moves.push_back({sender, worker, *block});
    }
  }
  return result;
}

std::vector<Transition> plan(const DTensorStructInfo& from, const DTensorStructInfo& to) {
  check_transition(from, to);
  std::vector<Transition> direct{transition(from, to)};
  if (direct.front().addends == 1) return direct;
  const auto between = reduced_by_parts(from, to);
  if (!between) return direct;
  std::vector<Transition> by_parts{transition(from, *between), transition(*between, to)};
  return cost(by_parts) < cost(direct) ? by_parts : direct;
}

}  // namespace tutti::distributed
