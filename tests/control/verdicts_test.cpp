// The root's state machine, without MPI and without threads.
#include "control/channel/mpi/verdicts.h"

#include <gtest/gtest.h>

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace std::chrono_literals;

constexpr Clock::time_point kStart{1h};  // nothing looks at a clock of its own

Arrival arrival(int worker, uint64_t seq, uint32_t index, int64_t count, std::vector<int32_t> members = {0, 1, 2}) {
  return {.worker = worker,
          .id = {world_key(), seq, index},
          .signature = {.op = CollectiveOp::kAllreduce, .dtype = kFloat32, .count = count},
          .members = std::move(members)};
}

TEST(Verdicts, falls_once_when_all_have_arrived) {
  Verdicts v;
  v.arrived(arrival(0, 5, 0, 4), kStart);
  v.arrived(arrival(2, 5, 0, 4), kStart);
  EXPECT_TRUE(v.fall(kStart).empty());
  v.arrived(arrival(1, 5, 0, 4), kStart);
  const auto fallen = v.fall(kStart);
  ASSERT_EQ(fallen.size(), 1u);
  EXPECT_TRUE(fallen[0].verdict.agreed);
  EXPECT_EQ(fallen[0].workers, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_TRUE(v.fall(kStart).empty());
}

TEST(Verdicts, an_arrival_that_comes_twice_is_one) {
  Verdicts v;
  for (int worker : {0, 1, 2}) v.arrived(arrival(worker, 5, 0, 4), kStart);
  EXPECT_EQ(v.fall(kStart).size(), 1u);
  v.arrived(arrival(2, 5, 0, 4), kStart);
  v.left(0, 5, std::nullopt);  // it has succeeded; worker 2 may not have read that it has, too
  EXPECT_TRUE(v.fall(kStart).empty());
  EXPECT_TRUE(v.missing(kStart + 10ms).empty());
}

TEST(Verdicts, a_member_that_left_the_command_fails_it_also_for_those_who_come_later) {
  Verdicts v;
  v.arrived(arrival(0, 5, 0, 4), kStart);
  EXPECT_TRUE(v.missing(kStart).empty());
  EXPECT_EQ(v.missing(kStart + 10ms), (std::vector<std::pair<int, uint64_t>>{{1, 5}, {2, 5}}));
  EXPECT_TRUE(v.missing(kStart + 20ms).empty());  // asked once
  v.left(2, 5, Origin{2, 3});
  auto fallen = v.fall(kStart);
  ASSERT_EQ(fallen.size(), 1u);
  EXPECT_FALSE(fallen[0].verdict.agreed);
  EXPECT_EQ(fallen[0].verdict.why.origin, (Origin{2, 3}));
  v.arrived(arrival(1, 5, 0, 4), kStart);
  fallen = v.fall(kStart);
  ASSERT_EQ(fallen.size(), 1u);
  EXPECT_EQ(fallen[0].workers, std::vector<int32_t>{1});
  EXPECT_FALSE(fallen[0].verdict.agreed);
}

TEST(Verdicts, a_failed_collective_never_succeeds_with_what_its_members_left_behind) {
  Verdicts v;
  v.arrived(arrival(0, 5, 0, 4), kStart);
  v.arrived(arrival(1, 5, 0, 8), kStart);
  EXPECT_TRUE(v.fall(kStart).empty());  // the third may still come
  const auto mismatch = v.fall(kStart + 1s);
  ASSERT_EQ(mismatch.size(), 1u);
  EXPECT_NE(mismatch[0].verdict.why.message.find("worker 1"), std::string::npos);
  v.arrived(arrival(2, 5, 0, 4), kStart);
  const auto late = v.fall(kStart);
  ASSERT_EQ(late.size(), 1u);
  EXPECT_FALSE(late[0].verdict.agreed);
}

TEST(Verdicts, the_next_collective_of_the_same_command_is_another_one) {
  Verdicts v;
  Arrival declined = arrival(0, 5, 0, 4);
  declined.left = {{declined.id, Origin{0, 5}}};
  v.arrived(declined, kStart);
  v.arrived(arrival(1, 5, 0, 4), kStart);
  v.arrived(arrival(2, 5, 0, 4), kStart);
  auto fallen = v.fall(kStart);
  ASSERT_EQ(fallen.size(), 1u);
  EXPECT_EQ(fallen[0].workers, (std::vector<int32_t>{1, 2}));
  EXPECT_FALSE(fallen[0].verdict.agreed);
  for (int w : {0, 1, 2}) v.arrived(arrival(w, 5, 1, 4), kStart);
  fallen = v.fall(kStart);
  ASSERT_EQ(fallen.size(), 1u);
  EXPECT_TRUE(fallen[0].verdict.agreed);
}

TEST(Verdicts, pairs_and_groups_do_not_disturb_each_other) {
  Verdicts v;
  Arrival a = arrival(0, 5, 0, 4, {0, 1}), b = arrival(1, 5, 0, 4, {0, 1}), c = arrival(2, 5, 0, 4, {2, 3});
  a.id.comm = b.id.comm = group_key(0);
  c.id.comm = group_key(1);
  v.arrived(c, kStart);
  v.arrived(a, kStart);
  v.arrived(b, kStart);
  const auto fallen = v.fall(kStart);
  ASSERT_EQ(fallen.size(), 1u);
  EXPECT_EQ(fallen[0].workers, (std::vector<int32_t>{0, 1}));
}

}  // namespace
