// A worker's communicators and device, by the layout alone.
#include "control/worker/members.h"

#include <gtest/gtest.h>

namespace {

using namespace tutti;
using namespace tutti::detail;

Layout layout_of(int workers, int groups, std::vector<int32_t> nodes) {
  Layout layout;
  layout.num_workers = workers;
  layout.num_groups = groups;
  layout.node_of = std::move(nodes);
  return layout;
}

TEST(Members, world_and_groups) {
  const Layout layout = layout_of(6, 2, {0, 0, 0, 1, 1, 1});
  EXPECT_EQ(world_of(layout, 4).workers, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(world_of(layout, 4).rank, 4);
  EXPECT_EQ(group_of(layout, 4).workers, (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(group_of(layout, 4).rank, 1);
  EXPECT_EQ(group_of(layout, 4).key, group_of(layout, 5).key);
  EXPECT_NE(group_of(layout, 4).key, group_of(layout, 2).key);
  EXPECT_EQ(group_of(layout_of(1, 1, {0}), 0).workers, std::vector<int>{0});
  EXPECT_EQ(group_of(layout_of(4, 1, {0, 0, 0, 0}), 2).key, world_of(layout, 2).key);
}

std::string why_not(const Layout& layout, int worker, const std::vector<int>& workers) {
  try {
    listed(layout, worker, workers);
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Members, a_list_is_in_its_own_order) {
  const Layout layout = layout_of(4, 1, {0, 0, 0, 0});
  EXPECT_EQ(listed(layout, 3, {3, 0}).rank, 0);
  EXPECT_EQ(listed(layout, 0, {3, 0}).rank, 1);
  EXPECT_EQ(why_not(layout, 0, {0, 4}), "worker::comm: worker 4, expected 0 to 3");
  EXPECT_EQ(why_not(layout, 0, {0, -1}), "worker::comm: worker -1, expected 0 to 3");
  EXPECT_EQ(why_not(layout, 0, {0, 1, 0}), "worker::comm: worker 0 is listed twice");
  EXPECT_EQ(why_not(layout, 2, {0, 1}), "worker::comm: worker 2 is not among the 2 that are listed");
  EXPECT_EQ(why_not(layout, 2, {}), "worker::comm: worker 2 is not among the 0 that are listed");
}

TEST(Members, devices_go_by_the_place_on_the_node) {
  const Layout layout = layout_of(5, 1, {0, 1, 0, 1, 0});
  for (const auto& [worker, place] : {std::pair{0, 0}, {2, 1}, {4, 2}, {1, 0}, {3, 1}}) {
    EXPECT_EQ(device_id(layout, worker, {}), place);
    EXPECT_EQ(device_id(layout, worker, {7, 5, 3}), 7 - 2 * place);
  }
  EXPECT_THROW(device_id(layout, 4, {0, 1}), UsageError);
  EXPECT_THROW(device_id(layout, 0, {-1}), UsageError);
  EXPECT_THROW(device_id(layout, 0, {int64_t{1} << 40}), UsageError);
}

TEST(Members, devices_go_by_the_plan) {
  const Layout layout = layout_of(3, 1, {0, 0, 0});
  const std::vector<std::string> turned = {"0000:02:00.0", "0000:03:00.0", "0000:01:00.0"};  // as CUDA_VISIBLE_DEVICES may say
  EXPECT_EQ(device_id(layout, 1, {}, turned, "0000:02:00.0"), 0);
  EXPECT_EQ(device_id(layout, 0, {}, turned, "0000:01:00.0"), 2);
  EXPECT_EQ(device_id(layout, 0, {1}, turned, "0000:01:00.0"), 1);  // as told
  EXPECT_EQ(device_id(layout, 1, {}, turned), 1);
  EXPECT_EQ(device_id(layout, 1, {}, turned, "0000:04:00.0"), 1);
  const std::vector<std::string> parts = {"0000:01:00.0", "0000:01:00.1", "0000:02:00.0", "0000:02:00.1"};  // of two GPUs
  for (int worker = 0; worker < 2; ++worker) EXPECT_EQ(device_id(layout, worker, {}, parts, "0000:02:00.0"), 2 + worker);
  EXPECT_EQ(device_id(layout, 2, {}, {"0000:02:00.0"}), 0);  // a GPU of its own: Slurm's --gpus-per-task
}

}  // namespace
