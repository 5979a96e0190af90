#include "control/channel/mpi/heartbeat.h"

#include <gtest/gtest.h>

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace std::chrono_literals;

const Clock::time_point start{};

TEST(Heartbeat, names_who_is_silent_for_longer_than_the_limit) {
  Heartbeat beat(5s, {1, 4}, start);
  EXPECT_EQ(beat.limit(), 5s);
  auto now = start;
  auto pass = [&](std::chrono::milliseconds time) {
    for (const auto end = now + time; now < end;) {
      now += 100ms;
      if (auto silent = beat.silent(now)) return silent->rank;
    }
    return -1;
  };
  EXPECT_EQ(pass(10s), -1);  // who has never come is not missed
  beat.heard(1, now);
  beat.heard(4, now);
  beat.heard(9, now);  // no neighbour
  beat.says_where(4, "node7");
  EXPECT_EQ(pass(4s), -1);
  beat.heard(1, now);
  EXPECT_EQ(pass(1200ms), 4);
  EXPECT_EQ(beat.silent(now)->host, "node7");
  beat.leaves(4);
  EXPECT_EQ(pass(3s), -1);
  EXPECT_EQ(pass(3s), 1);
}

TEST(Heartbeat, blames_nobody_when_we_ourselves_were_stopped) {
  Heartbeat beat(5s, {1}, start);
  beat.heard(1, start);
  EXPECT_FALSE(beat.silent(start + 60s));
  EXPECT_FALSE(beat.silent(start + 60900ms));
}

TEST(Heartbeat, is_due_every_second_and_can_be_off) {
  Heartbeat beat(5s, {1}, start), off(0s, {1}, start);
  EXPECT_TRUE(beat.due(start + 1s));
  EXPECT_FALSE(beat.due(start + 1500ms));
  EXPECT_TRUE(beat.due(start + 2s));
  EXPECT_FALSE(off.due(start + 9s));
  off.heard(1, start);
  EXPECT_FALSE(off.silent(start + 1s));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(off.silent(start + i * 500ms));
}

}  // namespace
