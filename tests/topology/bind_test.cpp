#include "topology/bind.h"

#include <gtest/gtest.h>

#include <thread>

#include "topology/discover.h"
#include "tutti/error.h"

namespace tutti::topology {
namespace {

TEST(Bind, the_kernel_grants_what_is_planned) {
  const Node node = discover();
  std::thread([&] {  // a thread of its own: this test's is left alone
    for (const auto& placement : plan(node, static_cast<int>(node.cores.size()))) {
      const std::string problem = bind(placement);
      EXPECT_TRUE(problem.empty() || problem.find("can't be preferred") != std::string::npos) << problem;
      EXPECT_EQ(granted().cpus, placement.cpus);
      EXPECT_EQ(verify(placement), "");
      if (problem.empty()) {
        EXPECT_EQ(granted().memory, placement.memory);
      }
    }
  })
      .join();
}

TEST(Bind, a_difference_is_told) {
  const Node node = discover();
  Placement other = plan(node, 1)[0];
  other.cpus.insert(9999);
  EXPECT_NE(verify(other).find("planned"), std::string::npos);
}

TEST(Bind, memory_from_elsewhere_is_told) {
  const Node node = discover();
  std::thread([&] {
    Placement placement = plan(node, 1)[0];
    if (!bind(placement).empty() || granted().memory.empty()) return;  // a container may forbid it
    EXPECT_EQ(verify(placement), "");
    placement.memory = {granted().memory.back() + 1};
    EXPECT_NE(verify(placement).find("memory of NUMA nodes"), std::string::npos);
  }).join();
}

TEST(Bind, refused_cpus_are_an_error) {
  Placement none;
  none.cpus.insert(9999);
  EXPECT_THROW((void)bind(none), SystemError);
}

}  // namespace
}  // namespace tutti::topology
