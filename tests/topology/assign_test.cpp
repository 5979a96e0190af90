#include "topology/assign.h"

#include <gtest/gtest.h>

#include "core/env.h"
#include "machines.h"
#include "topology/discover.h"

namespace tutti::topology {
using namespace detail;
namespace {

Node dgx() { return parse_topology(to_xml(known_machines()[0])); }
Node small() { return parse_topology(to_xml({.name = "small", .cores_per_numa = 2})); }

const std::map<std::string, std::string> kBoundByMpirun{{"OMPI_MCA_orte_bound_at_launch", "1"}};
const std::map<std::string, std::string> kBoundByUser{{"OMPI_MCA_orte_bound_at_launch", "1"},
                                                      {"OMPI_MCA_hwloc_base_binding_policy", "core"}};

TEST(Assign, every_rank_gets_its_gpu_and_cores_in_the_place_of_the_one_that_mpirun_gave) {
  const auto assigned = assign(dgx(), std::vector<Self>(8, {{0}, kBoundByMpirun}), Binding::kAuto);
  for (size_t r = 0; r < 8; ++r) {
    EXPECT_TRUE(assigned[r].is_bound);
    EXPECT_EQ(assigned[r].gpu, "cuda" + std::to_string(r));
    EXPECT_EQ(assigned[r].cpus.size(), 16U);
    EXPECT_EQ(assigned[r].nic, "mlx5_" + std::to_string(r / 2));
  }
}

TEST(Assign, what_the_user_has_bound_stays_and_gets_the_nearest_gpu) {
  const auto assigned = assign(dgx(), {{{112}, kBoundByUser}, {{48}, kBoundByUser}}, Binding::kAuto);
  EXPECT_FALSE(assigned[0].is_bound);
  EXPECT_EQ(assigned[0].cpus, IndexSet{112});
  EXPECT_EQ(assigned[0].gpu, "cuda4");
  EXPECT_EQ(assigned[1].gpu, "cuda0");
}

TEST(Assign, nobody_is_bound_to_a_single_core_unasked) {
  const std::vector<Self> two(2, {{0, 1}, {}});
  EXPECT_FALSE(assign(small(), two, Binding::kAuto)[0].is_bound);
  EXPECT_EQ(assign(small(), two, Binding::kAuto)[1].cpus, (IndexSet{0, 1}));
  EXPECT_TRUE(assign(small(), two, Binding::kCores)[1].is_bound);
  EXPECT_EQ(assign(small(), two, Binding::kCores)[1].cpus, IndexSet{1});
  EXPECT_EQ(assign(small(), {{{0}, kBoundByMpirun}}, Binding::kAuto)[0].cpus, (IndexSet{0, 1}))
      << "mpirun binds a single rank to one";
}

TEST(Assign, choices) {
  const std::vector<Self> ranks(2, {cpus_of(dgx()), {}});
  EXPECT_FALSE(assign(dgx(), ranks, Binding::kUser)[0].is_bound);
  EXPECT_EQ(assign(dgx(), ranks, Binding::kUser)[1].gpu, "cuda2");
  EXPECT_EQ(assign(dgx(), ranks, Binding::kCores)[1].cpus.size(), 128U);
  EXPECT_TRUE(assign(dgx(), ranks, Binding::kNone)[0].gpu.empty());
  EXPECT_EQ(parse_binding("cores"), Binding::kCores);
  EXPECT_THROW((void)parse_binding("socket"), SetUpError);
}

TEST(Assign, ranks_that_slurm_shows_one_gpu_each) {
  std::vector<Self> ranks;
  for (const char* gpu : {"3", "2", "1", "0"}) ranks.push_back({cpus_of(dgx()), {{"CUDA_VISIBLE_DEVICES", gpu}}});
  const auto assigned = assign(dgx(), ranks, Binding::kAuto);
  for (size_t r = 0; r < 4; ++r) EXPECT_EQ(assigned[r].gpu, "cuda" + std::to_string(3 - r));
}

}  // namespace
}  // namespace tutti::topology
