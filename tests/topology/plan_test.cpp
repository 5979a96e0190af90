#include "topology/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <regex>
#include <set>

#include "machines.h"
#include "topology/discover.h"
#include "topology/report.h"
#include "tutti/error.h"

namespace tutti::topology {
namespace {

namespace fs = std::filesystem;

Node node_of(const MadeMachine& machine) { return parse_topology(to_xml(machine)); }

std::vector<int> loads_of(const Node& node, const std::vector<Placement>& placements) {
  std::vector<int> loads(node.gpus.size());
  for (const Placement& p : placements)
    if (p.gpu >= 0) ++loads[static_cast<size_t>(p.gpu)];
  return loads;
}

std::vector<const Core*> cores_of(const Node& node, const Placement& p) {
  std::vector<const Core*> cores;
  for (const Core& core : node.cores)
    if (intersect(core.cpus, p.cpus)) cores.push_back(&core);
  return cores;
}

/// The memory of its cores, and a card that no other is better than: more of the GPU's bridges, or as many and nearer to the
/// cores.
void expect_near(const Node& node, const Placement& p) {
  std::set<int> memory;
  for (const Core* core : cores_of(node, p)) memory.insert(node.numa[static_cast<size_t>(core->numa)].os_index);
  EXPECT_EQ(p.memory, std::vector<int>(memory.begin(), memory.end()));
  const auto price = [&](const PciDevice& nic) {
    std::ptrdiff_t shared = 0;
    if (p.gpu >= 0) {
      const auto &a = nic.bridges, &b = node.gpus[static_cast<size_t>(p.gpu)].bridges;
      shared = std::ranges::mismatch(a, b).in1 - a.begin();
    }
    int nearest = INT32_MAX;
    for (const Core* core : cores_of(node, p)) nearest = std::min(nearest, distance(*core, nic));
    return std::pair(-shared, nearest);
  };
  for (const PciDevice& nic : node.nics)
    EXPECT_LE(price(node.nics[static_cast<size_t>(p.nic)]), price(nic)) << "card " << nic.name << " is nearer than " << p.nic;
}

/// Nobody has two cores more than another to whom one of them could be handed, by way of others or not.
void expect_even(const Node& node, const std::vector<Placement>& placements) {
  if (std::ranges::any_of(placements, &Placement::shares_cores)) return;
  const size_t n = placements.size();
  const auto takes = [&](size_t rank, const Core& core) {
    return placements[rank].gpu < 0 ||
           distance(core, node.gpus[static_cast<size_t>(placements[rank].gpu)]) == placements[rank].distance;
  };
  for (size_t from = 0; from < n; ++from) {
    std::vector<size_t> reached{from};
    for (size_t i = 0; i < reached.size(); ++i)
      for (const Core* core : cores_of(node, placements[reached[i]]))
        for (size_t to = 0; to < n; ++to)
          if (takes(to, *core) && !std::ranges::count(reached, to)) reached.push_back(to);
    const size_t mine = cores_of(node, placements[from]).size();
    for (const size_t to : reached)
      EXPECT_LE(mine, cores_of(node, placements[to]).size() + 1) << "rank " << from << " could hand a core on to rank " << to;
  }
}

void expect_sound(const Node& node, const std::vector<Placement>& placements) {
  ASSERT_FALSE(placements.empty());
  const IndexSet all = cpus_of(node);
  IndexSet taken;
  size_t sum = 0;
  for (const Placement& p : placements) {
    EXPECT_FALSE(p.cpus.empty());
    EXPECT_EQ(p.cpus & all, p.cpus) << "CPUs that the node has not";
    EXPECT_EQ(p.gpu >= 0, !node.gpus.empty()) << "every rank gets a GPU if there is one";
    EXPECT_EQ(p.nic >= 0, !node.nics.empty());
    expect_near(node, p);
    for (const Core& core : node.cores) {
      if (!intersect(core.cpus, p.cpus)) continue;
      EXPECT_EQ(core.cpus & p.cpus, core.cpus) << "a part of a core";
      EXPECT_EQ(p.gpu < 0 ? 0 : distance(core, node.gpus[static_cast<size_t>(p.gpu)]), p.distance)
          << "cores that are not equally far";
    }
    taken.insert(p.cpus);
    sum += p.cpus.size();
  }
  EXPECT_TRUE(placements.size() > node.cores.size() || taken.size() == sum) << "two ranks on one core";
  const auto loads = loads_of(node, placements);
  EXPECT_TRUE(loads.empty() || *std::ranges::max_element(loads) - *std::ranges::min_element(loads) <= 1)
      << "ranks of GPUs differ by more than one";
}

int total_distance(const std::vector<Placement>& placements) {
  return std::accumulate(placements.begin(), placements.end(), 0, [](int sum, const Placement& p) { return sum + p.distance; });
}

/// All ways of giving every rank a GPU and a core.
int least_total_distance(const Node& node, int ranks) {
  const int most = (ranks + static_cast<int>(node.gpus.size()) - 1) / static_cast<int>(node.gpus.size());
  const int least = ranks / static_cast<int>(node.gpus.size());
  std::map<std::vector<int>, size_t> cores;  // how many of each kind, by their distances
  for (const Core& core : node.cores) {
    std::vector<int> distances;
    for (const PciDevice& gpu : node.gpus) distances.push_back(distance(core, gpu));
    ++cores[distances];
  }
  std::vector<int> loads(node.gpus.size());
  int best = INT32_MAX;
  const std::function<void(int, int)> place = [&](int rank, int so_far) {
    if (so_far >= best) return;
    if (rank == ranks) {
      if (*std::ranges::min_element(loads) >= least) best = so_far;
      return;
    }
    for (size_t g = 0; g < loads.size(); ++g) {
      if (loads[g] == most) continue;
      ++loads[g];
      for (auto& [distances, left] : cores) {
        if (left == 0) continue;
        --left;
        place(rank + 1, so_far + distances[g]);
        ++left;
      }
      --loads[g];
    }
  };
  place(0, 0);
  return best;
}

std::string in_short(const Node& node, const std::vector<Placement>& placements) {
  std::string text = fmt::format("{} rank{}\n", placements.size(), placements.size() == 1 ? "" : "s");
  for (size_t r = 0; r < placements.size(); ++r) {
    const Placement& p = placements[r];
    fmt::format_to(std::back_inserter(text), "  {}: gpu {} nic {} cpus {} memory {} distance {}{}\n", r,
                   p.gpu < 0 ? "-" : node.gpus[static_cast<size_t>(p.gpu)].name,
                   p.nic < 0 ? "-" : node.nics[static_cast<size_t>(p.nic)].name, to_string(p.cpus), to_string(IndexSet(p.memory)),
                   p.distance, p.shares_cores ? " shared" : "");
  }
  return text;
}

/// A machine as a control group shows it. `is_saved_inside`: as lstopo saves it there, without the cores that are forbidden.
std::string restricted(const std::string& xml, const IndexSet& cpus, const IndexSet& memory, bool is_saved_inside) {
  std::string text = xml;
  for (const bool leaves_out : {false, true}) {
    hwloc_topology_t topology = nullptr;
    hwloc_topology_init(&topology);
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_flags(topology, leaves_out ? 0 : HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_xmlbuffer(topology, text.c_str(), static_cast<int>(text.size()) + 1);
    EXPECT_EQ(hwloc_topology_load(topology), 0);
    hwloc_bitmap_t allowed_cpus = hwloc_bitmap_alloc(), allowed_memory = hwloc_bitmap_alloc();
    for (const int cpu : cpus) hwloc_bitmap_set(allowed_cpus, static_cast<unsigned>(cpu));
    for (const int node : memory) hwloc_bitmap_set(allowed_memory, static_cast<unsigned>(node));
    EXPECT_TRUE(leaves_out || hwloc_topology_allow(topology, allowed_cpus, allowed_memory, HWLOC_ALLOW_FLAG_CUSTOM) == 0);
    char* written = nullptr;
    int size = 0;
    EXPECT_EQ(hwloc_topology_export_xmlbuffer(topology, &written, &size, 0), 0);
    text = written;
    hwloc_free_xmlbuffer(topology, written);
    hwloc_bitmap_free(allowed_cpus);
    hwloc_bitmap_free(allowed_memory);
    hwloc_topology_destroy(topology);
    if (!is_saved_inside) break;
  }
  return text;
}

/// Each NUMA node alone: distances stay those of the whole machine, so one rank gets a GPU that is nearest there.
void expect_the_same_distances_where_little_is_allowed(const std::string& xml) {
  const Node whole = parse_topology(xml);
  IndexSet all_memory;
  for (const NumaNode& numa : whole.numa) all_memory.insert(numa.os_index);
  for (size_t n = 0; n < whole.numa.size(); ++n) {
    std::vector<Core> cores;
    IndexSet cpus;
    for (const Core& core : whole.cores)
      if (core.numa == static_cast<int>(n)) cores.push_back(core), cpus.insert(core.cpus);
    const IndexSet own_memory{whole.numa[n].os_index};
    for (const auto& [memory, is_saved_inside] : {std::pair(all_memory, false), {own_memory, false}, {all_memory, true}}) {
      const char* how = is_saved_inside ? ", saved there" : "";
      SCOPED_TRACE(fmt::format("CPUs {} and memory {} are allowed{}", to_string(cpus), to_string(memory), how));
      const Node node = parse_topology(restricted(xml, cpus, memory, is_saved_inside));
      ASSERT_EQ(node.cores.size(), cores.size());
      ASSERT_EQ(node.gpus.size(), whole.gpus.size());
      ASSERT_EQ(node.nics.size(), whole.nics.size());
      for (size_t c = 0; c < cores.size(); ++c) {
        ASSERT_EQ(node.cores[c].cpus, cores[c].cpus);
        for (const auto& [here, there] : {std::pair(&node.gpus, &whole.gpus), {&node.nics, &whole.nics}})
          for (size_t d = 0; d < here->size(); ++d)
            ASSERT_EQ(distance(node.cores[c], (*here)[d]), distance(cores[c], (*there)[d])) << (*here)[d].name;
      }
      const Placement one = plan(node, 1)[0];
      expect_sound(node, {one});
      if (whole.gpus.empty()) continue;
      int least = INT32_MAX;
      for (const Core& core : cores)
        for (const PciDevice& gpu : whole.gpus) least = std::min(least, distance(core, gpu));
      EXPECT_EQ(one.distance, least);
    }
  }
}

/// Hybrid processors: nobody gets all the fast cores.
void expect_each_kind_is_shared(const Node& node, const std::vector<Placement>& placements) {
  std::map<int, std::vector<int>> counts;  // by kind: of each rank
  for (const Core& core : node.cores) {
    auto& of_kind = counts[core.kind];
    of_kind.resize(placements.size());
    for (size_t r = 0; r < placements.size(); ++r) of_kind[r] += intersect(core.cpus, placements[r].cpus);
  }
  for (const auto& [kind, of_ranks] : counts)
    EXPECT_LE(*std::ranges::max_element(of_ranks) - *std::ranges::min_element(of_ranks), 1) << "cores of kind " << kind;
}

/// What operating systems tell in another order each time.
MadeMachine shuffled(MadeMachine machine, std::mt19937& random) {
  std::ranges::shuffle(machine.devices, random);
  for (MadeDevice& device : machine.devices) std::ranges::shuffle(device.os_devices, random);
  return machine;
}

class OnMachine : public testing::TestWithParam<MadeMachine> {};

TEST_P(OnMachine, the_plans_are_the_ones_we_know) {
  const Node node = node_of(GetParam());
  std::string plans;
  const int most = std::max<int>(2 * static_cast<int>(node.gpus.size()), 4);
  for (int n = 1; n <= most; ++n) plans += in_short(node, plan(node, n));
  const fs::path file = fs::path(TUTTI_GOLDEN_FOLDER) / (GetParam().name + ".txt");
  if (std::getenv("TUTTI_UPDATE_GOLDEN")) std::ofstream(file) << plans;
  std::ifstream in(file);
  EXPECT_EQ(plans, std::string(std::istreambuf_iterator<char>(in), {}))
      << file << "; TUTTI_UPDATE_GOLDEN=1 writes it anew, then read the difference";
}

TEST_P(OnMachine, they_are_sound) {
  const Node node = node_of(GetParam());
  const int cores = static_cast<int>(node.cores.size());
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, cores / 2, cores, cores + 1, 2 * cores + 1}) {
    SCOPED_TRACE(fmt::format("{} ranks", n));
    expect_sound(node, plan(node, n));
    expect_even(node, plan(node, n));
    const auto by_cores = plan(node, n, Policy::kCores);
    std::vector<size_t> sizes;
    for (const Placement& p : by_cores) sizes.push_back(p.cpus.size());
    EXPECT_LE(*std::ranges::max_element(sizes) - *std::ranges::min_element(sizes), node.cores[0].cpus.size());
    if (n <= cores) expect_each_kind_is_shared(node, by_cores);
  }
}

TEST_P(OnMachine, distances_are_those_of_the_whole_machine) {
  MadeMachine machine = GetParam();
  machine.forbidden_cpus.clear();
  expect_the_same_distances_where_little_is_allowed(to_xml(machine));
  machine.latencies.clear();
  expect_the_same_distances_where_little_is_allowed(to_xml(machine));
}

TEST_P(OnMachine, the_order_of_discovery_does_not_matter) {
  std::mt19937 random(7);
  const Node node = node_of(GetParam());
  for (int i = 0; i < 5; ++i) {
    const Node other = node_of(shuffled(GetParam(), random));
    for (const int n : {1, 3, 8}) EXPECT_EQ(in_short(node, plan(node, n)), in_short(other, plan(other, n)));
  }
}

INSTANTIATE_TEST_SUITE_P(Plan, OnMachine, testing::ValuesIn(known_machines()), [](const auto& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

MadeMachine random_machine(std::mt19937& random, int most_cores) {
  const auto between = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  MadeMachine m{.name = "random",
                .packages = between(1, 2),
                .numa_per_package = between(1, 3),
                .cores_per_numa = between(1, most_cores),
                .threads = between(1, 2)};
  const int numas = m.packages * m.numa_per_package;
  const int gpus = between(0, 5);
  const bool has_libraries = between(0, 3) > 0;  // else only PCI tells of GPUs
  for (int g = 0; g < gpus; ++g)
    m.devices.push_back({between(-1, numas - 1), fmt::format("0000:{:02x}:00.0", 8 + g),
                         has_libraries ? std::vector{fmt::format("cuda{}", g)} : std::vector<std::string>()});
  for (int c = between(0, 3); c > 0; --c)
    m.devices.push_back({between(-1, numas - 1),
                         fmt::format("0000:{:02x}:00.0", 64 + c),
                         {fmt::format("mlx5_{}", c)},
                         "0207 [15b3:101b] [15b3:0007] 00"});
  if (between(0, 3) == 0) m.memory_without_cpus = {numas + between(0, 2)};
  if (between(0, 1)) {
    m.latencies.assign(static_cast<size_t>(numas * numas), 10);
    for (int a = 0; a < numas; ++a)
      for (int b = 0; b < a; ++b)
        m.latencies[static_cast<size_t>(a * numas + b)] = m.latencies[static_cast<size_t>(b * numas + a)] = between(11, 40);
  }
  const int cpus = numas * m.cores_per_numa * m.threads;
  for (int forbidden = between(0, cpus / 2); forbidden > 0; --forbidden) m.forbidden_cpus.push_back(between(1, cpus - 1));
  if (between(0, 3) == 0) m.fast_cores = between(1, m.cores_per_numa);
  return m;
}

TEST(Plan, is_sound_on_random_machines) {
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const MadeMachine machine = random_machine(random, 8);
    const Node node = node_of(machine);
    const int ranks = std::uniform_int_distribution(1, 20)(random);
    SCOPED_TRACE(fmt::format("machine {}, {} ranks\n{}", i, ranks, to_xml(machine)));
    const auto placements = plan(node, ranks);
    expect_sound(node, placements);
    expect_even(node, placements);
    const Node other = node_of(shuffled(machine, random));
    EXPECT_EQ(in_short(node, placements), in_short(other, plan(other, ranks)));
    if (ranks <= static_cast<int>(node.cores.size())) expect_each_kind_is_shared(node, plan(node, ranks, Policy::kCores));
    if (HasFailure()) return;
  }
}

TEST(Plan, has_the_least_total_distance) {
  std::mt19937 random(2);
  int checked = 0;
  for (int i = 0; checked < 300; ++i) {
    const Node node = node_of(random_machine(random, 3));
    const int ranks = std::uniform_int_distribution(1, 5)(random);
    if (node.gpus.empty() || node.gpus.size() > 4 || ranks > static_cast<int>(node.cores.size())) continue;
    ++checked;
    ASSERT_EQ(total_distance(plan(node, ranks)), least_total_distance(node, ranks))
        << "machine " << i << ", " << ranks << " ranks";
  }
}

/// The drivers' own devices in an XML, of the library that has most.
int gpus_in(const fs::path& xml) {
  std::ifstream file(xml);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  int most = 0;
  for (const char* name : {"cuda", "nvml", "rsmi"}) {
    const std::regex device(fmt::format("type=\"OSDev\"[^>]* name=\"{}[0-9]+\"", name));
    most = std::max(most, static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), device), {})));
  }
  return most;
}

TEST(Plan, is_sound_on_saved_machines) {  // TUTTI_TOPOLOGY_DIR: a folder with real ones
  const char* given = std::getenv("TUTTI_TOPOLOGY_DIR");
  const fs::path folder = given ? given : TUTTI_LAB_FOLDER;
  int machines = 0;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() != ".xml") continue;
    SCOPED_TRACE(file.path());
    const Node node = read_topology(file.path());
    std::ifstream in(file.path());
    expect_the_same_distances_where_little_is_allowed(std::string(std::istreambuf_iterator<char>(in), {}));
    ++machines;
    if (const int told = gpus_in(file.path()); told > 0) {
      EXPECT_EQ(static_cast<int>(node.gpus.size()), told) << "GPUs that drivers know";
    }
    for (int n = 1; n <= std::max<int>(2 * static_cast<int>(node.gpus.size()), 8); ++n) {
      expect_sound(node, plan(node, n));
      expect_even(node, plan(node, n));
      if (n <= static_cast<int>(node.cores.size())) expect_each_kind_is_shared(node, plan(node, n, Policy::kCores));
      if (node.gpus.empty() || n > 4 || n > static_cast<int>(node.cores.size()))
        continue;  // brute force gives each rank a core of its own
      EXPECT_EQ(total_distance(plan(node, n)), least_total_distance(node, n));
    }
  }
  EXPECT_GT(machines, 0);
}

TEST(Plan, memory_that_may_not_be_used_is_not_preferred) {
  const std::string xml = to_xml(known_machines()[0]);
  EXPECT_EQ(plan(parse_topology(restricted(xml, {0, 1}, {0, 1}, false)), 1)[0].memory, (std::vector{0}));
  EXPECT_EQ(plan(parse_topology(restricted(xml, {0, 1}, {1}, false)), 1)[0].memory, (std::vector<int>{}));
}

TEST(Plan, cores_are_shared_out_evenly_and_from_one_numa_node_each) {
  MadeMachine machine{.name = "half-known",
                      .packages = 1,
                      .numa_per_package = 2,
                      .cores_per_numa = 8};  // of two GPUs the bus does not tell where they are
  for (int g = 0; g < 4; ++g)
    machine.devices.push_back({g < 2 ? g : -1, fmt::format("0000:{:02x}:00.0", 8 + g), {fmt::format("cuda{}", g)}});
  for (const Placement& p : plan(node_of(machine), 4)) {
    EXPECT_EQ(p.cpus.size(), 4U);
    EXPECT_EQ(p.memory.size(), 1U);
  }
}

TEST(Plan, ranks_that_see_different_gpus_get_theirs) {
  const Node node = node_of(known_machines()[0]);
  std::vector<Limits> ranks;
  for (const int gpu : {5, 2, 7, 0}) ranks.push_back({{}, {gpu}});
  const auto placements = plan(node, ranks);
  for (size_t r = 0; r < ranks.size(); ++r) EXPECT_EQ(placements[r].gpu, ranks[r].gpus[0]);
  for (const Placement& p : placements) EXPECT_EQ(p.distance, 0);
}

TEST(Plan, the_order_in_which_ranks_see_gpus_does_not_matter) {
  const Node node = node_of(known_machines()[0]);
  std::vector<Limits> ranks;
  for (const int first : {0, 1, 2, 3}) ranks.push_back({{}, {first, (first + 1) % 4, (first + 2) % 4, (first + 3) % 4}});
  const auto placements = plan(node, ranks);
  EXPECT_EQ(in_short(node, placements), in_short(node, plan(node, std::vector<Limits>(4, {{}, {0, 1, 2, 3}}))));
}

TEST(Plan, ranks_that_see_no_gpu_get_none_and_leave_the_others_theirs) {
  const Node node = node_of(known_machines()[0]);
  const auto placements = plan(node, {{{}, {}}, {{}, {0}}, {{}, {}}, {{}, {0, 1}}});
  EXPECT_EQ(placements[0].gpu, -1);
  EXPECT_EQ(placements[2].gpu, -1);
  EXPECT_EQ(placements[1].gpu, 0);
  EXPECT_EQ(placements[3].gpu, 1);
  std::set<int> cpus;
  size_t sum = 0;
  for (const Placement& p : placements) cpus.insert(p.cpus.begin(), p.cpus.end()), sum += p.cpus.size();
  EXPECT_EQ(cpus.size(), sum);
}

TEST(Plan, bound_ranks_keep_their_cores_and_get_the_nearest_gpus) {
  const Node node = node_of(known_machines()[2]);  // GPUs on NUMA nodes 1, 3, 5, 7 of eight cores each
  std::vector<Limits> ranks;
  for (const int numa : {7, 1, 5, 3}) {
    Limits rank{{}, {0, 1, 2, 3}};
    for (int c = 0; c < 4; ++c) rank.cpus.insert(8 * numa + c);
    ranks.push_back(rank);
  }
  const auto placements = plan(node, ranks);
  for (size_t r = 0; r < 4; ++r) EXPECT_EQ(placements[r].cpus, ranks[r].cpus);
  for (const auto& [rank, gpu] : {std::pair(0, 3), {1, 0}, {2, 2}, {3, 1}})
    EXPECT_EQ(placements[static_cast<size_t>(rank)].gpu, gpu);
  EXPECT_EQ(total_distance(placements), 0);
}

TEST(Plan, seven_ranks_on_four_gpus_all_have_one) {  // others leave ranks without
  const Node node = node_of(known_machines()[2]);
  EXPECT_EQ(loads_of(node, plan(node, 7)), (std::vector{2, 2, 2, 1}));
}

TEST(Plan, refuses_what_can_t_be) {
  const Node node = node_of(known_machines()[0]);
  EXPECT_THROW((void)plan(node, 0), UsageError);
  EXPECT_THROW((void)plan(node, {{{100'000}, {}}}), UsageError);
  EXPECT_THROW((void)plan(node, {{{}, {8}}}), UsageError);
  EXPECT_THROW((void)plan(Node(), 1), UsageError);
}

}  // namespace
}  // namespace tutti::topology
