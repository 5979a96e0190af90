#include "topology/launcher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <map>

#include "core/env.h"
#include "machines.h"
#include "topology/discover.h"
#include "topology/plan.h"

namespace tutti::topology {
using namespace detail;
namespace {

Environment with(std::map<std::string, std::string> variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Node dgx() {
  Node node = parse_topology(to_xml(known_machines()[0]));
  for (size_t g = 0; g < node.gpus.size(); ++g) node.gpus[g].uuid = "GPU-" + std::string(1, static_cast<char>('a' + g)) + "123";
  return node;
}

void expect_local(const std::map<std::string, std::string>& variables, int rank, int ranks) {
  const LocalRank local = local_rank(with(variables));
  EXPECT_EQ(local.rank, rank);
  EXPECT_EQ(local.ranks, ranks);
}

TEST(Launcher, the_local_rank_is_the_innermost_launchers) {
  expect_local({}, 0, 1);
  expect_local({{"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                {"SLURM_LOCALID", "0"},
                {"SLURM_STEP_ID", "0"},
                {"SLURM_STEP_TASKS_PER_NODE", "1"}},
               2, 4);
  expect_local({{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "3"}}, 1, 3);
  const std::map<std::string, std::string> step{
      {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}, {"SLURM_LOCALID", "2"}};
  for (const auto& [node, ranks] : {std::pair("0", 4), {"1", 4}, {"2", 3}}) {
    auto here = step;
    here["SLURM_NODEID"] = node;
    expect_local(here, 2, ranks);
  }
}

TEST(Launcher, damaged_variables_are_refused) {
  EXPECT_THROW((void)local_rank(with({{"OMPI_COMM_WORLD_LOCAL_RANK", "x"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})), SetUpError);
  EXPECT_THROW((void)local_rank(with({{"OMPI_COMM_WORLD_LOCAL_RANK", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})), SetUpError);
  expect_local({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "(x"}, {"SLURM_LOCALID", "2"}}, 0, 1);
}

TEST(Launcher, what_mpirun_does_unasked_may_be_overridden) {
  const Node node = dgx();
  const IndexSet some{0, 1};
  const std::string bound = "OMPI_MCA_orte_bound_at_launch";
  EXPECT_EQ(bound_by(with({}), node, cpus_of(node)), BoundBy::kNobody);
  EXPECT_EQ(bound_by(with({}), node, some), BoundBy::kUser) << "taskset, Slurm";
  EXPECT_EQ(bound_by(with({{bound, "1"}}), node, some), BoundBy::kDefault);
  EXPECT_EQ(bound_by(with({{"TUTTI_BOUND", "1"}}), node, some), BoundBy::kDefault);
  for (const char* asked : kBindingVariables) EXPECT_EQ(bound_by(with({{bound, "1"}, {asked, "x"}}), node, some), BoundBy::kUser);
  EXPECT_EQ(bound_by(with({{bound, "1"}, {"OMPI_MCA_rmaps_base_mapping_policy", "socket:PE=2"}}), node, some), BoundBy::kUser);
  EXPECT_EQ(bound_by(with({{bound, "1"}, {"OMPI_MCA_rmaps_base_mapping_policy", "socket"}}), node, some), BoundBy::kDefault);
}

TEST(Launcher, visible_gpus_by_number_and_by_uuid) {
  const Node node = dgx();
  const auto visible = [&](const char* value) {
    std::vector<std::string> notes;
    return visible_gpus(with({{"CUDA_VISIBLE_DEVICES", value}}), node, notes);
  };
  std::vector<std::string> notes;
  EXPECT_EQ(visible_gpus(with({}), node, notes).size(), 8U);
  EXPECT_EQ(visible("3,1"), (std::vector{3, 1}));
  EXPECT_EQ(visible("GPU-c,GPU-a1"), (std::vector{2, 0}));
  EXPECT_EQ(visible("2, 2,1"), (std::vector{2, 1}));
  EXPECT_EQ(visible("1,9,2"), (std::vector{1})) << "as CUDA: up to the first that is not there";
  for (const char* none : {"", "-1", "NoDevFiles"}) EXPECT_TRUE(visible(none).empty()) << none;
  EXPECT_TRUE(visible_gpus(with({{"CUDA_VISIBLE_DEVICES", "MIG-77"}}), node, notes).empty());
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("MIG-77"), std::string::npos);
}

TEST(Launcher, parts_of_a_gpu) {
  const Node node = dgx();
  std::vector<std::string> notes;
  const auto part = with({{"CUDA_VISIBLE_DEVICES", "MIG-GPU-c123/2/0"}});
  EXPECT_EQ(visible_gpus(part, node, notes), (std::vector{2}));
  EXPECT_EQ(notes.size(), 0U);
  for (const char* unknown : {"MIG-GPU-zzz/2/0", "MIG-GPU-", "MIG-", "MIG-41b35146-a5f6"})
    EXPECT_TRUE(visible_gpus(with({{"CUDA_VISIBLE_DEVICES", unknown}}), node, notes).empty()) << unknown;
  EXPECT_EQ(notes.size(), 4U);
  Node one = node;
  one.gpus.resize(1);
  EXPECT_EQ(visible_gpus(with({{"CUDA_VISIBLE_DEVICES", "MIG-41b35146-a5f6"}}), one, notes), (std::vector{0}));
  const auto told = with({{"CUDA_VISIBLE_DEVICES", "MIG-41b35146-a5f6,MIG-7"},
                          {kWholes, "MIG-7=" + node.gpus[1].pci + ",MIG-41b35146-a5f6=" + node.gpus[4].pci}});
  EXPECT_EQ(visible_gpus(told, node, notes), (std::vector{4, 1})) << "the driver knows";
}

TEST(Launcher, each_rank_gets_a_part) {
  Node node = dgx();
  const auto environment = with({{"CUDA_VISIBLE_DEVICES", "MIG-GPU-c123/1/0,MIG-GPU-c123/2/0,MIG-GPU-a123/1/0"}});
  add_parts(environment, node);
  add_parts(environment, node);
  std::vector<std::string> notes;
  EXPECT_EQ(visible_gpus(environment, node, notes), (std::vector{9, 10, 8}))
      << "devices of their own, once; by GPU, whatever the variable's order";
  EXPECT_EQ(visible_gpus(with({}), node, notes).size(), 8U) << "numbers count whole ones";
  EXPECT_EQ(first_gpu(environment, node, 10)[0].second, "MIG-GPU-c123/2/0,MIG-GPU-c123/1/0,MIG-GPU-a123/1/0");
  EXPECT_EQ(node.gpus[9].pci, node.gpus[2].pci);
  Node other = dgx();
  add_parts(with({{"CUDA_VISIBLE_DEVICES", "MIG-GPU-a123/1/0,MIG-GPU-c123/2/0,MIG-GPU-c123/1/0"}}), other);
  for (size_t g = 8; g < 11; ++g) EXPECT_EQ(other.gpus[g].uuid, node.gpus[g].uuid);
  std::vector<int> gpus;
  for (const Placement& p : plan(node, std::vector<Limits>(3, {{}, {8, 9, 10}}))) gpus.push_back(p.gpu);
  std::ranges::sort(gpus);
  EXPECT_EQ(gpus, (std::vector{8, 9, 10}));
}

TEST(Launcher, gpus_that_can_t_be_opened_are_not_counted) {
  const Node node = dgx();
  std::vector<std::string> notes;
  const std::string two = node.gpus[5].pci + "," + node.gpus[6].pci;
  EXPECT_EQ(visible_gpus(with({{kReachableGpus, two}}), node, notes), (std::vector{5, 6}));
  EXPECT_EQ(visible_gpus(with({{kReachableGpus, two}, {"CUDA_VISIBLE_DEVICES", "1"}}), node, notes), (std::vector{6}))
      << "numbers count what is left";
  EXPECT_TRUE(visible_gpus(with({{kReachableGpus, ""}}), node, notes).empty());
  Node without_uuids = node;
  for (PciDevice& gpu : without_uuids.gpus) gpu.uuid.clear();
  EXPECT_EQ(first_gpu(with({{kReachableGpus, two}}), without_uuids, 6)[0].second, "1,0");
}

TEST(Launcher, rocm_has_two_variables) {
  const Node node = parse_topology(to_xml(known_machines()[1]));
  std::vector<std::string> notes;
  EXPECT_EQ(visible_gpus(with({{"ROCR_VISIBLE_DEVICES", "4,5,6"}, {"HIP_VISIBLE_DEVICES", "2,0"}}), node, notes),
            (std::vector{6, 4}));
  EXPECT_EQ(visible_gpus(with({{"CUDA_VISIBLE_DEVICES", ""}}), node, notes).size(), 8U);
  EXPECT_EQ(visible_gpus(with({{"CUDA_VISIBLE_DEVICES", "4,1"}}), node, notes), (std::vector{4, 1})) << "HIP takes CUDA's";
  EXPECT_EQ(visible_gpus(with({{"CUDA_VISIBLE_DEVICES", "4"}, {"HIP_VISIBLE_DEVICES", ""}}), node, notes), (std::vector{4}));
  EXPECT_EQ(visible_gpus(with({{"CUDA_VISIBLE_DEVICES", "4"}, {"HIP_VISIBLE_DEVICES", "2"}}), node, notes), (std::vector{2}));
  EXPECT_EQ(first_gpu(with({{"CUDA_VISIBLE_DEVICES", "4"}}), node, 4)[0].second.substr(0, 1), "4");
  const auto named = first_gpu(with({{"ROCR_VISIBLE_DEVICES", "6,4"}}), node, 4);
  EXPECT_EQ(named[0], (std::pair<std::string, std::string>("ROCR_VISIBLE_DEVICES", "4,6")));
  EXPECT_EQ(named[1], (std::pair<std::string, std::string>("HIP_VISIBLE_DEVICES", "0,1"))) << "HIP counts what ROCR has left";
}

TEST(Launcher, a_program_finds_its_gpu_first_and_all_others) {
  Node node = dgx();
  const auto named = first_gpu(with({{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}), node, 2);
  EXPECT_EQ(named[0], (std::pair<std::string, std::string>("CUDA_VISIBLE_DEVICES", "GPU-c123,GPU-a123,GPU-b123,GPU-d123")));
  node.gpus[1].uuid.clear();
  EXPECT_EQ(first_gpu(with({{"CUDA_VISIBLE_DEVICES", "0,1"}}), node, 1)[0].second, "1,0");
  node.gpus[0].uuid = node.gpus[1].uuid = "GPU-same";
  EXPECT_EQ(first_gpu(with({{"CUDA_VISIBLE_DEVICES", "0,1"}}), node, 1)[0].second, "1,0") << "parts of a GPU may share an id";
  EXPECT_TRUE(first_gpu(with({}), node, -1).empty());
  const Node guessed = parse_topology(to_xml(known_machines()[2]));
  EXPECT_TRUE(first_gpu(with({}), guessed, 1).empty()) << "nobody knows the driver's numbers of what only PCI tells of";
}

}  // namespace
}  // namespace tutti::topology
