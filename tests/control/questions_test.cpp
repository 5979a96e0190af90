// The root's table of questions about collectives that workers have started without waiting.
#include "control/channel/mpi/questions.h"

#include <gtest/gtest.h>

#include <chrono>

namespace {

using namespace tutti::detail;
using namespace std::chrono_literals;
using tutti::kFloat32;

Sequence sequence(uint32_t number, int64_t count = 10, uint64_t since = 1) {
  Sequence s(0, {0, 1, 2}, since, 64);
  for (uint32_t n = 1; n <= number; ++n)
    s.add(ArrivalLine::key_of({world_key(), since + n, 0}, {.op = CollectiveOp::kAllreduce, .dtype = kFloat32, .count = count}));
  return s;
}
const Clock::time_point kNow = Clock::now();

TEST(Questions, are_answered_when_all_nodes_have) {
  Questions table;
  const Sequence asked = sequence(3);
  EXPECT_TRUE(table.asked(1, asked, {0, 1, 2}, kNow));
  table.answered(0, {asked.id(), {}});
  table.answered(2, {asked.id(), {}});
  table.answered(2, {asked.id(), {}});
  EXPECT_TRUE(table.take_known().empty());
  table.answered(1, {asked.id(), {}});
  const auto known = table.take_known();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0].askers, std::vector{1});
  EXPECT_EQ(known[0].answer.id, asked.id());
  EXPECT_FALSE(known[0].answer.why);
  EXPECT_TRUE(table.take_known().empty());
}

TEST(Questions, of_several_nodes_are_one) {
  Questions table;
  const Sequence asked = sequence(3);
  EXPECT_TRUE(table.asked(1, asked, {0, 1}, kNow));
  EXPECT_FALSE(table.asked(0, asked, {0, 1}, kNow));
  table.answered(0, {asked.id(), {}});
  table.answered(1, {asked.id(), {}});
  EXPECT_EQ(table.take_known().at(0).askers, (std::vector{1, 0}));
  EXPECT_FALSE(table.asked(2, asked, {0, 1}, kNow));  // known
  EXPECT_EQ(table.take_known().at(0).askers, std::vector{2});
  EXPECT_TRUE(table.asked(2, sequence(4), {0, 1}, kNow));
  EXPECT_TRUE(table.asked(1, sequence(3, 11), {0, 1}, kNow));  // not the same
}

TEST(Questions, one_node_that_says_no_is_enough) {
  Questions table;
  const Sequence asked = sequence(3);
  table.asked(1, asked, {0, 1, 2}, kNow);
  table.answered(2, {asked.id(), Disagreement{{{2, 7}}, "no"}});
  table.answered(0, {asked.id(), {}});
  const auto known = table.take_known();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_EQ(known[0].answer.why->message, "no");
  EXPECT_FALSE(table.asked(0, asked, {0, 1, 2}, kNow));
  EXPECT_EQ(table.take_known().at(0).answer.why->message, "no");
}

TEST(Questions, fail_by_what_is_waited_for) {
  Questions table;
  const Sequence asked = sequence(3);
  table.asked(1, asked, {0, 1}, kNow);
  EXPECT_TRUE(table.pending({world_key(), 4, 0}));
  EXPECT_FALSE(table.pending({world_key(), 3, 0}));
  EXPECT_FALSE(table.anyone_waits_since(kNow - 1s));
  EXPECT_TRUE(table.anyone_waits_since(kNow));
  table.fail({{world_key(), 3, 0}}, "circle");
  EXPECT_TRUE(table.take_known().empty());
  table.fail({{world_key(), 4, 0}}, "circle");
  EXPECT_EQ(table.take_known().at(0).answer.why->message, "circle");
  EXPECT_FALSE(table.pending({world_key(), 4, 0}));
}

TEST(Questions, know_since_when_the_communicators_are_made) {
  for (const uint64_t since : {uint64_t{1}, uint64_t{1} << 31, (uint64_t{1} << 32) - 1, uint64_t{1} << 33}) {
    EXPECT_EQ(sequence(3, 10, since).since(), since);
    EXPECT_EQ(sequence(3, 10, since).id().since, since);
  }
}

TEST(Questions, of_lost_communicators_are_dropped) {
  Questions table;
  const Sequence old = sequence(3, 10, 5), young = sequence(3, 10, 9);
  table.asked(1, old, {0, 1}, kNow);
  table.asked(1, young, {0, 1}, kNow);
  table.drop_until(5);
  for (const int node : {0, 1}) table.answered(node, {old.id(), {}});
  EXPECT_TRUE(table.take_known().empty());
  for (const int node : {0, 1}) table.answered(node, {young.id(), {}});
  EXPECT_EQ(table.take_known().size(), 1u);
}

}  // namespace
