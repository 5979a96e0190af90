#include "topology/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "topology/min_cost_flow.h"
#include "tutti/error.h"

namespace tutti::topology {
namespace {

/// Cores that are equally far from every GPU, and of one kind.
struct Class {
  std::vector<Core> cores;
  std::vector<int> distances;  // by GPU
};

std::vector<Core> allowed_cores(const Node& node, const IndexSet& cpus) {
  std::vector<Core> cores;
  for (Core core : node.cores)
    if (core.cpus = core.cpus & cpus; !core.cpus.empty()) cores.push_back(std::move(core));
  return cores;
}

std::vector<Class> classes_of(const Node& node, const std::vector<Core>& cores) {
  std::map<std::pair<std::vector<int>, int>, size_t> known;
  std::vector<Class> classes;
  for (const Core& core : cores) {
    std::vector<int> distances;
    for (const PciDevice& gpu : node.gpus) distances.push_back(distance(core, gpu));
    const auto [entry, is_new] = known.try_emplace({distances, core.kind}, classes.size());
    if (is_new) classes.push_back({{}, distances});
    classes[entry->second].cores.push_back(core);
  }
  return classes;
}

/// An edge for each unit, each dearer than the one before: a sum of squares, which is least when all have as many.
void add_even_edges(MinCostFlow& flow, size_t from, size_t to, int64_t capacity, size_t tier, int64_t weight = 1) {
  for (int64_t k = 1; k <= capacity; ++k) {
    Cost cost{};
    cost[tier] = (2 * k - 1) * weight;
    flow.add_edge(from, to, 1, cost);
  }
}
enum Tier : size_t { kLoad, kDistance, kCrowding, kNumber };

Cost for_distance(int distance) {
  Cost cost{};
  cost[kDistance] = distance;
  return cost;
}
Cost for_number(int gpu) {  // the first of equals
  Cost cost{};
  cost[kNumber] = gpu;
  return cost;
}

struct Home {
  int gpu = -1;
  size_t in_class = 0;
};

/// Ranks that may use the same cores: everyone's GPU, and the class of its first core.
std::vector<Home> find_homes(const Node& node, const std::vector<Limits>& ranks, const std::vector<Class>& classes) {
  const size_t n = ranks.size(), num_gpus = node.gpus.size();
  std::map<std::vector<int>, std::vector<size_t>> groups;  // who see the same GPUs
  for (size_t r = 0; r < n; ++r) groups[ranks[r].gpus].push_back(r);
  const size_t num_cores =
      std::accumulate(classes.begin(), classes.end(), size_t{0}, [](size_t sum, const Class& c) { return sum + c.cores.size(); });
  const size_t ranks_per_core = (n + num_cores - 1) / num_cores;

  // source -> group -> GPU (one more for those who see none) -> its load -> class -> its crowd -> sink
  const size_t source = 0, sink = 1, first_group = 2, first_gpu = first_group + groups.size(),
               first_load = first_gpu + num_gpus + 1, first_class = first_load + num_gpus + 1;
  MinCostFlow flow(first_class + classes.size());
  std::vector<std::vector<std::pair<int, size_t>>> takes;  // by group: GPU and edge
  size_t group = first_group;
  for (const auto& [sees, members] : groups) {
    flow.add_edge(source, group, static_cast<int64_t>(members.size()));
    auto& edges = takes.emplace_back();
    for (const int gpu : sees)
      edges.emplace_back(gpu,
                         flow.add_edge(group, first_gpu + static_cast<size_t>(gpu), static_cast<int64_t>(n), for_number(gpu)));
    if (sees.empty()) edges.emplace_back(-1, flow.add_edge(group, first_gpu + num_gpus, static_cast<int64_t>(n)));
    ++group;
  }
  std::vector<std::vector<size_t>> settles(num_gpus + 1);  // by GPU and class: edge
  for (size_t g = 0; g <= num_gpus; ++g) {
    if (g < num_gpus) add_even_edges(flow, first_gpu + g, first_load + g, static_cast<int64_t>(n), kLoad);
    else flow.add_edge(first_gpu + g, first_load + g, static_cast<int64_t>(n));
    for (size_t c = 0; c < classes.size(); ++c)
      settles[g].push_back(flow.add_edge(first_load + g, first_class + c, static_cast<int64_t>(n),
                                         for_distance(g < num_gpus ? classes[c].distances[g] : 0)));
  }
  constexpr int64_t kFine = 1'000'000;
  for (size_t c = 0; c < classes.size(); ++c) {
    const auto size = static_cast<int64_t>(classes[c].cores.size());
    add_even_edges(flow, first_class + c, sink, std::min(size * static_cast<int64_t>(ranks_per_core), static_cast<int64_t>(n)),
                   kCrowding, kFine / size);
  }
  flow.send(source, sink, static_cast<int64_t>(n));

  std::vector<Home> homes(n);
  std::vector<std::vector<size_t>> ranks_of(num_gpus + 1);
  group = 0;
  for (const auto& [sees, members] : groups) {
    auto member = members.begin();
    for (const auto& [gpu, edge] : takes[group++])
      for (int64_t k = flow.flow(edge); k > 0; --k, ++member) {
        homes[*member].gpu = gpu;
        ranks_of[gpu < 0 ? num_gpus : static_cast<size_t>(gpu)].push_back(*member);
      }
  }
  for (size_t g = 0; g <= num_gpus; ++g) {
    std::ranges::sort(ranks_of[g]);
    auto rank = ranks_of[g].begin();
    for (size_t c = 0; c < classes.size(); ++c)
      for (int64_t k = flow.flow(settles[g][c]); k > 0; --k, ++rank) homes[*rank].in_class = c;
  }
  return homes;
}

void take(Placement& placement, const Node& node, const Core& core) {
  placement.cpus.insert(core.cpus);
  const NumaNode& memory = node.numa[static_cast<size_t>(core.numa)];
  const bool is_new = !std::ranges::count(placement.memory, memory.os_index);
  if (is_new && memory.memory_bytes > 0) placement.memory.push_back(memory.os_index);
}

/// How many cores of each class each rank gets: all those at its distance, as equal as can be in all, then of each kind, then
/// from its home.
std::vector<std::vector<size_t>> shares_of(const std::vector<Class>& classes, const std::vector<Home>& homes,
                                           const std::vector<std::vector<size_t>>& eligible) {
  enum Tier : size_t { kTotal, kKind, kAway, kNumber };
  const size_t n = homes.size();
  std::map<int, size_t> kinds;
  int64_t all = 0;
  for (size_t c = 0; c < classes.size(); ++c) {
    kinds.try_emplace(classes[c].cores[0].kind, kinds.size());
    if (!eligible[c].empty()) all += static_cast<int64_t>(classes[c].cores.size());
  }
  // source -> class -> rank's cores of a kind -> rank -> sink
  const size_t source = 0, sink = 1, first_class = 2, first_kind = first_class + classes.size(),
               first_rank = first_kind + n * kinds.size();
  std::vector<std::vector<size_t>> share(n, std::vector<size_t>(classes.size()));
  for (int64_t most = 2 * (all / static_cast<int64_t>(n) + 1);; most *= 2) {  // few ranks get more than twice their part
    MinCostFlow flow(first_rank + n);
    std::vector<std::tuple<size_t, size_t, size_t>> gives;  // class, rank, edge
    for (size_t c = 0; c < classes.size(); ++c) {
      flow.add_edge(source, first_class + c, static_cast<int64_t>(classes[c].cores.size()));
      for (const size_t r : eligible[c]) {
        Cost cost{};
        cost[kAway] = classes[c].distances != classes[homes[r].in_class].distances;
        gives.emplace_back(
            c, r, flow.add_edge(first_class + c, first_kind + r * kinds.size() + kinds.at(classes[c].cores[0].kind), most, cost));
      }
    }
    for (size_t r = 0; r < n; ++r) {
      for (size_t k = 0; k < kinds.size(); ++k)
        add_even_edges(flow, first_kind + r * kinds.size() + k, first_rank + r, most, kKind);
      for (int64_t k = 1; k <= most; ++k) {
        Cost cost{};
        cost[kTotal] = 2 * k - 1;
        cost[kNumber] = static_cast<int64_t>(r);
        flow.add_edge(first_rank + r, sink, 1, cost);
      }
    }
    if (flow.send(source, sink, all) < all) continue;
    for (const auto& [c, r, edge] : gives) share[r][c] = static_cast<size_t>(flow.flow(edge));
    return share;
  }
}

/// Cores for those who have a home; classes with more ranks than cores are shared by all who live there.
void share_cores(const Node& node, const std::vector<Class>& classes, const std::vector<Home>& homes,
                 std::vector<Placement>& placements) {
  const size_t n = homes.size();
  const auto distance_of = [&](size_t rank, size_t c) {
    return homes[rank].gpu < 0 ? 0 : classes[c].distances[static_cast<size_t>(homes[rank].gpu)];
  };
  std::vector<std::vector<size_t>> at_home(classes.size()), eligible(classes.size());
  for (size_t r = 0; r < n; ++r) at_home[homes[r].in_class].push_back(r);
  const auto is_crowded = [&](size_t c) { return at_home[c].size() > classes[c].cores.size(); };
  for (size_t r = 0; r < n; ++r) {
    placements[r].gpu = homes[r].gpu;
    placements[r].distance = distance_of(r, homes[r].in_class);
    placements[r].shares_cores = is_crowded(homes[r].in_class);
    for (size_t c = 0; c < classes.size(); ++c) {
      if (placements[r].shares_cores && c == homes[r].in_class)
        for (const Core& core : classes[c].cores) take(placements[r], node, core);
      if (!placements[r].shares_cores && !is_crowded(c) && distance_of(r, c) == placements[r].distance) eligible[c].push_back(r);
    }
  }
  const auto share = shares_of(classes, homes, eligible);
  for (size_t c = 0; c < classes.size(); ++c) {
    auto core = classes[c].cores.begin();
    for (const size_t r : eligible[c])
      for (size_t k = 0; k < share[r][c]; ++k) take(placements[r], node, *core++);
  }
}

/// Ranks whose cores are given: GPUs alone.
void place_bound(const Node& node, const std::vector<Limits>& ranks, std::vector<Placement>& placements) {
  const size_t n = ranks.size(), num_gpus = node.gpus.size(), source = 0, sink = 1, first_rank = 2, first_gpu = first_rank + n;
  MinCostFlow flow(first_gpu + num_gpus);
  std::vector<std::vector<std::pair<int, size_t>>> takes(n);
  std::vector<std::map<int, int>> distances(n);
  for (size_t r = 0; r < n; ++r) {
    const auto cores = allowed_cores(node, ranks[r].cpus);
    for (const Core& core : cores) take(placements[r], node, core);
    flow.add_edge(source, first_rank + r, 1);
    for (const int gpu : ranks[r].gpus) {
      int nearest = INT32_MAX;
      for (const Core& core : cores) nearest = std::min(nearest, distance(core, node.gpus[static_cast<size_t>(gpu)]));
      distances[r][gpu] = nearest;
      takes[r].emplace_back(gpu, flow.add_edge(first_rank + r, first_gpu + static_cast<size_t>(gpu), 1, for_distance(nearest)));
    }
  }
  for (size_t g = 0; g < num_gpus; ++g) add_even_edges(flow, first_gpu + g, sink, static_cast<int64_t>(n), kLoad);
  flow.send(source, sink, static_cast<int64_t>(n));
  for (size_t r = 0; r < n; ++r)
    for (const auto& [gpu, edge] : takes[r])
      if (flow.flow(edge) > 0) placements[r].gpu = gpu, placements[r].distance = distances[r][gpu];
}

/// Equal parts of the cores of each kind, one after another; more ranks than cores share them all.
void cut_evenly(const std::vector<Core>& cores, std::vector<Limits>& ranks, std::vector<Placement>& placements) {
  const size_t n = ranks.size();
  for (size_t r = 0; r < n; ++r) {
    placements[r].shares_cores = n > cores.size();
    if (n <= cores.size()) ranks[r].cpus = {};
  }
  if (n > cores.size()) return;
  std::map<int, std::vector<Core>> kinds;
  for (const Core& core : cores) kinds[core.kind].push_back(core);
  size_t has_more = n;  // who gets one more than others gets it after those who got it last
  for (const auto& [kind, some] : kinds) {
    std::vector<size_t> parts(n, some.size() / n);
    for (size_t left = some.size() % n; left > 0; --left) {
      has_more = (has_more + n - 1) % n;
      ++parts[has_more];
    }
    auto core = some.begin();
    for (size_t r = 0; r < n; ++r)
      for (size_t k = 0; k < parts[r]; ++k) ranks[r].cpus.insert((core++)->cpus);
  }
}

void choose_nics(const Node& node, std::vector<Placement>& placements) {
  std::vector<int> load(node.nics.size());
  for (Placement& placement : placements) {
    std::optional<std::tuple<int, int, int>> best;
    for (size_t i = 0; i < node.nics.size(); ++i) {
      int nearest = INT32_MAX, shared = 0;
      for (const Core& core : allowed_cores(node, placement.cpus)) nearest = std::min(nearest, distance(core, node.nics[i]));
      if (placement.gpu >= 0) {
        const auto &a = node.nics[i].bridges, &b = node.gpus[static_cast<size_t>(placement.gpu)].bridges;
        shared = static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
      }
      const std::tuple price(-shared, nearest, load[i]);
      if (best && *best <= price) continue;
      best = price;
      placement.nic = static_cast<int>(i);
    }
    if (placement.nic >= 0) ++load[static_cast<size_t>(placement.nic)];
  }
}

void check(const Node& node, const std::vector<Limits>& ranks) {
  if (ranks.empty()) throw UsageError("plan: no ranks");
  if (node.cores.empty()) throw UsageError("plan: the node has no core that may be used");
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (allowed_cores(node, ranks[r].cpus).empty())
      throw UsageError(
          fmt::format("plan: rank {} may use CPUs {}, the node has {}", r, to_string(ranks[r].cpus), to_string(cpus_of(node))));
    for (const int gpu : ranks[r].gpus)
      if (gpu < 0 || static_cast<size_t>(gpu) >= node.gpus.size())
        throw UsageError(fmt::format("plan: rank {} may use GPU {}, the node has {}", r, gpu, node.gpus.size()));
  }
}

}  // namespace

std::vector<Placement> plan(const Node& node, const std::vector<Limits>& given, Policy policy) {
  std::vector<Limits> ranks = given;
  for (Limits& rank : ranks) {
    if (rank.cpus.empty()) rank.cpus = cpus_of(node);
    std::ranges::sort(rank.gpus);  // ranks may see the same in other orders
  }
  check(node, ranks);
  std::vector<Placement> placements(ranks.size());
  const bool is_bound = std::ranges::any_of(ranks, [&](const Limits& rank) { return rank.cpus != ranks[0].cpus; });
  const bool no_gpus = std::ranges::all_of(ranks, [](const Limits& rank) { return rank.gpus.empty(); });
  const auto cores = allowed_cores(node, ranks[0].cpus);
  if (!is_bound && policy == Policy::kGpu && !no_gpus) {
    const auto classes = classes_of(node, cores);
    share_cores(node, classes, find_homes(node, ranks, classes), placements);
  } else {
    if (!is_bound) cut_evenly(cores, ranks, placements);
    place_bound(node, ranks, placements);
  }
  for (Placement& placement : placements) std::ranges::sort(placement.memory);
  choose_nics(node, placements);
  return placements;
}

std::vector<Placement> plan(const Node& node, int ranks, Policy policy) {
  std::vector<int> all(node.gpus.size());
  std::iota(all.begin(), all.end(), 0);
  return plan(node, std::vector<Limits>(static_cast<size_t>(std::max(ranks, 0)), {cpus_of(node), all}), policy);
}

}  // namespace tutti::topology
