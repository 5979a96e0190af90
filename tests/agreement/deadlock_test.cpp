#include "agreement/deadlock.h"

#include <gtest/gtest.h>

namespace {

using namespace tutti;
using namespace tutti::detail;
using Kind = MemberState::Kind;

MemberState waits(int32_t worker, CommKey comm, uint32_t index, std::vector<int32_t> members) {
  return {.worker = worker,
          .kind = Kind::kWaits,
          .doing = "c" + std::to_string(comm),
          .id = {comm, 5, index},
          .members = std::move(members)};
}
std::optional<Deadlock> find(const std::vector<MemberState>& states) {
  return find_deadlock(states, [](const MemberState&) { return true; });
}

TEST(Deadlock, a_circle_is_found_and_named) {
  const auto found = find({waits(0, 1, 0, {0, 1}), waits(1, 2, 0, {0, 1}), waits(2, 1, 0, {2})});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->message,
            "deadlock in command 5: worker 0 waits in c1 for worker 1; worker 1 waits in c2 for worker 0; members must call "
            "their collectives in the same order");
  EXPECT_EQ(found->workers, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(found->ids.size(), 2u);
}

TEST(Deadlock, who_waits_for_a_circle_is_in_it) {
  EXPECT_EQ(find({waits(0, 1, 0, {0, 1}), waits(1, 2, 0, {0, 1}), waits(2, 3, 0, {0, 2})})->workers,
            (std::vector<int32_t>{0, 1, 2}));
}

TEST(Deadlock, a_circle_with_what_was_started_is_found) {
  MemberState device = waits(0, 1, 3, {0, 1}), host = waits(1, 2, 0, {0, 1});
  device.at_device = true;
  device.started = {{1, 5, 3}};
  EXPECT_TRUE(find({device, host}));
  for (const uint32_t index : {2u, 3u, 4u}) {
    host.started = {{1, 5, index}};
    EXPECT_EQ(find({device, host}).has_value(), index == 2) << index;
  }
  host.started = {{3, 5, 4}};
  EXPECT_TRUE(find({device, host}));
}

TEST(Deadlock, one_that_may_come_breaks_it) {
  auto computes = waits(1, 2, 0, {});
  computes.kind = Kind::kComputes;
  EXPECT_FALSE(find({waits(0, 1, 0, {0, 1}), computes}));
  auto idle = computes;
  idle.kind = Kind::kIdle;
  EXPECT_FALSE(find({waits(0, 1, 0, {0, 1}), idle}));
  EXPECT_FALSE(find({waits(0, 1, 0, {0, 1})}));                          // worker 1 has not answered
  EXPECT_FALSE(find({waits(0, 1, 0, {0, 1}), waits(1, 1, 0, {0, 1})}));  // all are there
  EXPECT_FALSE(find({waits(0, 1, 0, {0, 1}), waits(1, 2, 0, {1, 2}), computes, [] {
                       auto s = waits(2, 0, 0, {});
                       s.kind = Kind::kMoves;
                       return s;
                     }()}));
  auto further = waits(1, 2, 0, {0, 1});
  further.joined = {{1, 5, 0}, {2, 5, 0}};  // it has been there and gone on: worker 0 is about to see it
  EXPECT_FALSE(find({waits(0, 1, 0, {0, 1}), further}));
  auto failed = waits(1, 2, 0, {0, 1});
  failed.left = {{1, 5, 0}};  // it has left what worker 0 waits in: that one's verdict is about to fall
  EXPECT_FALSE(find({waits(0, 1, 0, {0, 1}), failed}));
  auto leaves = waits(1, 2, 0, {0, 1});
  leaves.left = {{2, 5, 0}};  // it is on its way out, and may come to what worker 0 waits in
  EXPECT_FALSE(find({waits(0, 1, 0, {0, 1}), leaves}));
  EXPECT_FALSE(find_deadlock(std::vector{waits(0, 1, 0, {0, 1}), waits(1, 2, 0, {0, 1})},
                             [](const MemberState& s) { return s.worker != 1; }));
}

TEST(Deadlock, looks_differ_by_what_is_waited_for) {
  EXPECT_EQ(find({waits(0, 1, 0, {0, 1}), waits(1, 2, 0, {0, 1})}), find({waits(0, 1, 0, {0, 1}), waits(1, 2, 0, {0, 1})}));
  EXPECT_NE(find({waits(0, 1, 0, {0, 1}), waits(1, 2, 0, {0, 1})}), find({waits(0, 1, 1, {0, 1}), waits(1, 2, 1, {0, 1})}));
}

}  // namespace
