#include "agreement/arrival_line.h"

#include <gtest/gtest.h>

#include <thread>

namespace {

using namespace tutti;
using namespace tutti::detail;

TEST(ArrivalLine, holds_all_of_an_identity_and_a_signature) {
  const CollectiveId id{members_key(CommKind::kPart, std::vector{70000, 63, 5}), uint64_t{1} << 60, 0xfffffffe};
  const Signature signature{.op = CollectiveOp::kReduceScatter,
                            .reduce = ReduceOp::kAvg,
                            .dtype = {2, 16, 300},
                            .device_type = dl::kCUDAManaged,
                            .root = -1,
                            .count = int64_t{1} << 50};
  ArrivalLine line{};
  EXPECT_EQ(line.version(), 0u);
  for (const bool in_record : {false, true}) {
    line.write(in_record ? 3 : 1, ArrivalLine::key_of(id, signature), 7, 8, in_record);
    ArrivalLine::Seen seen{};
    ASSERT_TRUE(line.read(seen));
    EXPECT_EQ(line.version(), in_record ? 6u : 2u);
    EXPECT_EQ(seen.in_record, in_record);
    EXPECT_EQ(seen.key, ArrivalLine::key_of(id, signature));
    const Arrival arrival = ArrivalLine::arrival(seen, 3);
    EXPECT_EQ(arrival.worker, 3);
    EXPECT_EQ(arrival.id, id);
    EXPECT_EQ(arrival.signature, signature);
    EXPECT_EQ(arrival.step, 7u);
    EXPECT_EQ(arrival.taken, 8u);
  }
}

TEST(ArrivalLine, any_difference_shows) {
  const CollectiveId id{world_key(), 5, 1};
  const Signature s{.op = CollectiveOp::kAllreduce, .dtype = kFloat32, .count = 10};
  const auto key = ArrivalLine::key_of(id, s);
  const auto differs = [&](auto change) {
    CollectiveId other_id = id;
    Signature other = s;
    change(other_id, other);
    return ArrivalLine::key_of(other_id, other) != key;
  };
  EXPECT_TRUE(differs([](CollectiveId& i, Signature&) { i.comm = group_key(0); }));
  EXPECT_TRUE(differs([](CollectiveId& i, Signature&) { ++i.seq; }));
  EXPECT_TRUE(differs([](CollectiveId& i, Signature&) { ++i.index; }));
  EXPECT_TRUE(differs([](CollectiveId&, Signature& o) { o.op = CollectiveOp::kAllToAll; }));
  EXPECT_TRUE(differs([](CollectiveId&, Signature& o) { o.reduce = ReduceOp::kMax; }));
  EXPECT_TRUE(differs([](CollectiveId&, Signature& o) { o.dtype = kInt32; }));
  EXPECT_TRUE(differs([](CollectiveId&, Signature& o) { o.device_type = dl::kCUDA; }));
  EXPECT_TRUE(differs([](CollectiveId&, Signature& o) { o.root = 1; }));
  EXPECT_TRUE(differs([](CollectiveId&, Signature& o) { o.count = 11; }));
}

TEST(ArrivalLine, a_reader_never_sees_halves_of_two_arrivals) {
  ArrivalLine line{};
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !ends.load(); ++i) line.write(i, {i, i, i, i & 0xffff, i}, i, i, false);
  });
  for (uint64_t seen_times = 0, last = 0; seen_times < 20000;) {
    ArrivalLine::Seen seen{};
    if (!line.read(seen)) continue;
    ++seen_times;
    const uint64_t i = seen.key.comm;
    EXPECT_GE(i, last);
    EXPECT_EQ(seen.key, (ArrivalLine::Key{i, i, i, i & 0xffff, i}));
    EXPECT_TRUE(seen.step == i && seen.taken == i);
    last = i;
  }
  ends = true;
  writer.join();
}

}  // namespace
