#include "agreement/failures.h"

#include <gtest/gtest.h>

#include <vector>

namespace {

using namespace tutti;
using namespace tutti::detail;

constexpr size_t kBytes = 4096;

class FailuresTest : public testing::Test {
 protected:
  std::optional<Origin> at(uint64_t seq) const {
    return Failures::at(record_, seq, [] { return false; });
  }
  /// A command of a worker: what is acknowledged with it, what it fails with.
  void command(uint64_t seq, const std::vector<Origin>& acknowledged, std::optional<Origin> fails) {
    failures_.acknowledge(acknowledged);
    if (fails) failures_.add(*fails);
    failures_.publish(seq);
  }

  std::vector<uint64_t> memory_ = std::vector<uint64_t>(SharedRecord::footprint(kBytes) / 8 + 1);
  SharedRecord record_{reinterpret_cast<std::byte*>(memory_.data()), kBytes};
  Failures failures_{record_};
};

TEST_F(FailuresTest, a_worker_without_any_has_none) {
  command(1, {}, std::nullopt);
  EXPECT_FALSE(failures_.skipping());
  EXPECT_FALSE(at(1));
}

TEST_F(FailuresTest, last_until_they_are_acknowledged) {
  command(3, {}, Origin{2, 3});
  command(4, {}, std::nullopt);
  command(5, {{2, 3}}, std::nullopt);
  EXPECT_FALSE(at(2));
  EXPECT_EQ(at(3), (Origin{2, 3}));
  EXPECT_EQ(at(4), (Origin{2, 3}));
  EXPECT_FALSE(at(5));
}

TEST_F(FailuresTest, the_first_of_several_is_the_reason) {
  command(3, {}, Origin{2, 3});
  command(4, {}, Origin{1, 4});
  command(5, {{2, 3}}, std::nullopt);
  command(6, {{1, 4}}, std::nullopt);
  EXPECT_EQ(at(4), (Origin{2, 3}));
  EXPECT_EQ(at(5), (Origin{1, 4}));
  EXPECT_FALSE(at(6));
}

TEST_F(FailuresTest, an_acknowledgement_of_others_changes_nothing) {
  command(3, {}, Origin{2, 3});
  command(4, {{2, 2}, {1, 3}}, std::nullopt);
  EXPECT_EQ(at(4), (Origin{2, 3}));
}

TEST_F(FailuresTest, each_interval_ends_where_it_was_acknowledged) {
  for (uint64_t seq = 2; seq < 20; seq += 2) {
    command(seq, {}, Origin{0, seq});
    command(seq + 1, {{0, seq}}, std::nullopt);
  }
  EXPECT_EQ(at(10), (Origin{0, 10}));
  EXPECT_FALSE(at(11));
}

TEST_F(FailuresTest, the_latest_64_are_kept) {
  for (uint64_t seq = 1; seq <= 100; ++seq) command(seq, {{0, seq - 1}}, Origin{0, seq});
  EXPECT_EQ(at(100), (Origin{0, 100}));
  EXPECT_EQ(at(37), (Origin{0, 37}));
  EXPECT_FALSE(at(36));
}

TEST_F(FailuresTest, a_reader_of_a_dead_writer_gives_up) {
  std::atomic_ref(memory_[0]).store(1);  // the writer has died over it
  EXPECT_FALSE(Failures::at(record_, 3, [] { return true; }));
}

}  // namespace
