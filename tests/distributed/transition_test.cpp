#include "distributed/transition.h"

#include "distributed/share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "distributed/memory.h"
#include "distributed/party.h"
#include "distributed/random_infos.h"
#include "support/session_kinds.h"
#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::distributed;

std::vector<size_t> places_of(const Block& block, const Shape& shape) {
  std::vector<size_t> places{0};
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    std::vector<size_t> more;
    for (const size_t place : places)
      for (int64_t i = 0; i < block.shape[axis]; ++i)
        more.push_back(place * static_cast<size_t>(shape[axis]) + static_cast<size_t>(block.offset[axis] + i));
    places = more;
  }
  return places;
}

bool has_partial(const DTensorStructInfo& info) {
  return std::ranges::any_of(info.placement().dim_specs(), [](auto& spec) { return spec.kind() == PlacementSpecKind::kPartial; });
}

TEST(Transition, brings_each_element_once_and_only_what_is_not_there) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    tutti_test::RandomInfos random(seed);
    const Shape shape = random.shape();
    const DTensorStructInfo from = random.info(shape), to = random.info(shape);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + to_string(from) + " -> " + to_string(to));
    const Transition step = transition(from, to);
    int64_t all = 0;
    for (const int64_t worker : to.device_mesh().device_ids()) {
      std::map<size_t, int64_t> came, held;
      int64_t received = 0;
      for (const Move& move : step.moves) {
        if (move.to != worker) continue;
        for (const size_t place : places_of(move.block, shape)) ++came[place];
        if (move.from != worker) received += element_count(move.block);
        if (move.from != worker) all += element_count(move.block);
        const auto lies = intersection(move.block, from.local(move.from));
        ASSERT_EQ(lies, move.block) << "worker " << move.from << " does not hold it";
      }
      const bool is_neutral = std::ranges::find(step.neutral, worker) != step.neutral.end();
      const auto wanted = is_neutral ? std::vector<size_t>() : places_of(to.local(worker), shape);
      ASSERT_EQ(came.size(), wanted.size());
      for (const size_t place : wanted) ASSERT_EQ(came[place], step.addends);
      if (has_partial(from) || is_neutral) continue;
      int64_t missing = static_cast<int64_t>(wanted.size());
      if (from.device_mesh().coordinate(worker))
        if (const auto common = intersection(to.local(worker), from.local(worker))) missing -= element_count(*common);
      ASSERT_EQ(received, missing);
    }
    ASSERT_EQ(step.traffic().bytes, all * 4);
  }
}

TEST(Transition, the_same_place_moves_nothing) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    tutti_test::RandomInfos random(seed);
    const DTensorStructInfo info = random.info(random.shape());
    const auto steps = plan(info, info);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps.front().traffic().bytes, 0) << to_string(info);
    EXPECT_EQ(steps.front().traffic().messages, 0);
    EXPECT_TRUE(steps.front().neutral.empty());
  }
}

int64_t bytes_of(const std::vector<Transition>& steps) {
  int64_t bytes = 0;
  for (const Transition& step : steps) bytes += step.traffic().bytes;
  return bytes;
}

TEST(Plan, moves_the_bytes_of_the_bound) {
  const TensorStructInfo tensor{{64, 64}, kFloat32};
  constexpr int64_t kBytes = 64 * 64 * 4;
  const DeviceMesh mesh({4});
  const auto bytes = [&](const char* from, const char* to) {
    return bytes_of(plan({tensor, mesh, Placement::from_text(from)}, {tensor, mesh, Placement::from_text(to)}));
  };
  EXPECT_EQ(bytes("S[0]", "S[1]"), kBytes * 3 / 4);
  EXPECT_EQ(bytes("S[0]", "R"), kBytes * 3);
  EXPECT_EQ(bytes("R", "S[1]"), 0);
  EXPECT_EQ(bytes("R", "P"), 0);
  EXPECT_EQ(bytes("P", "S[0]"), kBytes * 3);   // as a reduce-scatter
  EXPECT_EQ(bytes("P", "R"), kBytes * 3 * 2);  // as an allreduce: twice (p - 1) / p of each worker's
  EXPECT_EQ(bytes("S[0]", "S[0](64, 0, 0, 0)"), kBytes * 3 / 4);
}

TEST(Plan, no_worker_is_to_reduce_alone) {
  const TensorStructInfo tensor{{1024, 1024}, kFloat32};
  const auto steps =
      plan({tensor, DeviceMesh({8}), Placement::from_text("P")}, {tensor, DeviceMesh({1}), Placement::from_text("R")});
  ASSERT_EQ(steps.size(), 2u);
  for (const Transition& step : steps) EXPECT_LT(step.traffic().most, 1024 * 1024 * 4);
}

TEST(Transition, holders_share_the_work) {
  const TensorStructInfo tensor{{64}, kFloat32};
  const auto step = transition({tensor, DeviceMesh({4}), Placement::from_text("R")},
                               {tensor, DeviceMesh({4}, {4, 5, 6, 7}), Placement::from_text("S[0]")});
  EXPECT_EQ(step.traffic().most, 64);  // each of the four sends a quarter
  EXPECT_EQ(step.traffic().most_messages, 1);
}

TEST(Shares, only_workers_that_send_or_receive_are_members) {
  const TensorStructInfo tensor{{6}, kFloat32};
  const DTensorStructInfo from(tensor, DeviceMesh({3}), Placement::from_text("S[0](4, 2, 0)"));
  const DTensorStructInfo to(tensor, DeviceMesh({3}), Placement::from_text("S[0](3, 3, 0)"));
  const auto mine = shares(0, from, to), others = shares(2, from, to);
  ASSERT_EQ(mine->size(), 1u);
  EXPECT_EQ(mine->front().party.members, (std::vector<int>{0, 1}));
  EXPECT_EQ(mine->front().moves.size(), 2u);  // keeps 3, sends 1
  ASSERT_EQ(others->size(), 1u);
  EXPECT_TRUE(others->front().party.members.empty());
  EXPECT_EQ(shares(0, from, to), mine);  // kept
  EXPECT_TRUE(shares(7, from, to)->empty());
}

TEST(Parties, are_those_that_have_to_do_with_each_other) {
  const TensorStructInfo tensor{{6, 8}, kFloat32};
  const DeviceMesh mesh({2, 3});
  const auto of = [&](const char* from, const char* to) {
    return parties(transition({tensor, mesh, Placement::from_text(from)}, {tensor, mesh, Placement::from_text(to)}));
  };
  using Members = std::vector<int>;
  const auto rows = of("S[0], S[1]", "S[0], R"), columns = of("S[0], S[1]", "R, S[1]"), all = of("S[0], S[1]", "R, R");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].members, (Members{0, 1, 2}));
  EXPECT_EQ(rows[1].members, (Members{3, 4, 5}));
  EXPECT_EQ(rows[0].way, Party::Way::kGather);
  EXPECT_FALSE(rows[0].is_even);  // 8 columns by 3
  EXPECT_FALSE(rows[0].is_direct);
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_EQ(columns[1].members, (Members{1, 4}));
  EXPECT_EQ(columns[1].way, Party::Way::kGather);
  EXPECT_TRUE(columns[1].is_even);
  EXPECT_TRUE(columns[1].is_direct);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].way, Party::Way::kGather);
  ASSERT_EQ(of("S[0], R", "S[1], R").size(), 3u);
  EXPECT_EQ(of("S[0], R", "S[1], R")[0].way, Party::Way::kBlocks);
  EXPECT_EQ(of("P, R", "S[1], R")[0].way, Party::Way::kBlocks);
  EXPECT_TRUE(of("R, S[1]", "S[0], S[1]").empty());  // each has what it needs
}

TEST(Shares, all_from_one_is_a_broadcast) {
  const TensorStructInfo tensor{{6}, kFloat32};
  const DTensorStructInfo one(tensor, DeviceMesh({1}, {2}), Placement::from_text("R"));
  const auto root = [&](const DTensorStructInfo& from, const char* to, const DeviceMesh& mesh) {
    return shares(2, from, {tensor, mesh, Placement::from_text(to)})->front().party.root;
  };
  EXPECT_EQ(root(one, "R", DeviceMesh({3})), 2);
  EXPECT_EQ(root(one, "R", DeviceMesh({2})), 2);  // without the one that sends
  EXPECT_EQ(root(one, "S[0]", DeviceMesh({3})), -1);
  EXPECT_EQ(root({tensor, DeviceMesh({3}), Placement::from_text("S[0]")}, "R", DeviceMesh({3})), -1);
}

TEST(Plan, small_partial_values_go_in_one_exchange) {
  const TensorStructInfo tensor{{4}, kFloat32};
  EXPECT_EQ(
      plan({tensor, DeviceMesh({2}), Placement::from_text("P")}, {tensor, DeviceMesh({2}), Placement::from_text("R")}).size(),
      1u);
}

TEST(Plan, is_of_one_tensor) {
  const DeviceMesh mesh({2});
  const auto message = tutti_test::message_of<UsageError>([&] {
    plan({{{4}}, mesh, Placement::from_text("R")}, {{{5}}, mesh, Placement::from_text("R")});
  });
  EXPECT_NE(message.find("not the same tensor"), std::string::npos) << message;
}

TEST(Plan, refuses_what_rounds_again) {
  const auto refused = [](const char* from, const char* to, DType dtype) {
    const TensorStructInfo tensor{{4, 4}, dtype};
    const DeviceMesh mesh({2, 2});
    return tutti_test::message_of<UsageError>([&] {
      plan({tensor, mesh, Placement::from_text(from)}, {tensor, mesh, Placement::from_text(to)});
    });
  };
  for (const auto& [from, to] :
       {std::pair("R, R", "P(avg), R"), {"P(avg), P(avg)", "P(avg), R"}, {"P(avg), R", "P(avg), P(avg)"}})
    EXPECT_NE(refused(from, to, kFloat32).find("an average"), std::string::npos) << from << " to " << to;
  EXPECT_EQ(refused("P(avg), P(avg)", "R, R", kInt32), "");
  EXPECT_EQ(refused("P(avg), S[0]", "P(avg), S[1]", kInt32), "");
  EXPECT_NE(refused("R, R", "R, P(prod)", kComplex64).find("complex"), std::string::npos);
  EXPECT_EQ(refused("R, R", "R, P(prod)", kInt8), "");
  EXPECT_EQ(refused("P(prod), R", "P(prod), S[0]", kComplex64), "");
}

TEST(Plan, is_explained) {
  const TensorStructInfo tensor{{1024, 1024}, kFloat32};
  EXPECT_EQ(
      explain({tensor, DeviceMesh({4}), Placement::from_text("P")}, {tensor, DeviceMesh({4}), Placement::from_text("R")}),
      "float32 (1024, 1024) by 'P' on DeviceMesh((4,), range(0, 4))\n"
      "-> 'S[0]' on DeviceMesh((4,), range(0, 4)): 12582912 bytes in 12 messages, at most 3145728 to or from a worker; "
      "each element is "
      "reduced from 4\n"
      "-> 'R' on DeviceMesh((4,), range(0, 4)): 12582912 bytes in 12 messages, at most 3145728 to or from a worker\n"
      "memory besides a worker's part, with the result: 5242880 bytes where workers read each other's parts, 11534336 where "
      "blocks are packed\n");
}

TEST(Relabelled, moves_the_fewest_bytes_of_all_orders) {
  int64_t saved = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    tutti_test::RandomInfos random(seed);
    const Shape shape = random.shape();
    const DTensorStructInfo from = random.info(shape), to = random.info(shape);
    const DeviceMesh mesh = relabelled(from, to);
    const auto moved = [&](const DeviceMesh& on) { return bytes_moved(from, {to.tensor_sinfo(), on, to.placement()}); };
    ASSERT_TRUE(std::ranges::is_permutation(mesh.device_ids(), to.device_mesh().device_ids()));
    ASSERT_EQ(std::pair(mesh.shape(), mesh.names()), std::pair(to.device_mesh().shape(), to.device_mesh().names()));
    saved += moved(to.device_mesh()) - moved(mesh);
    if (has_partial(from) || has_partial(to)) {
      EXPECT_EQ(mesh, to.device_mesh());
      continue;
    }
    const bool is_better = moved(mesh) < moved(to.device_mesh());
    EXPECT_EQ(mesh != to.device_mesh(), is_better);
    if (mesh.size() > 5) continue;
    std::vector<int64_t> order = mesh.device_ids();
    std::ranges::sort(order);
    do EXPECT_LE(moved(mesh), moved(DeviceMesh(mesh.shape(), order))) << to_string(from) << " to " << to_string(to);
    while (std::ranges::next_permutation(order).found);
  }
  EXPECT_GT(saved, 1000);
  const TensorStructInfo tensor{{8}, kFloat32};
  const DTensorStructInfo from(tensor, DeviceMesh({4}), Placement::from_text("S[0]"));
  const DTensorStructInfo turned(tensor, DeviceMesh({4}, {3, 2, 1, 0}), Placement::from_text("S[0]"));
  EXPECT_EQ(relabelled(from, turned), DeviceMesh({4}));
  EXPECT_THROW(relabelled(from, {{{9}, kFloat32}, DeviceMesh({4}), Placement::from_text("S[0]")}), UsageError);
}

TEST(Rounds, bring_each_element_of_a_block_once) {
  for (const Block& block : {Block{{5, 7}, {1, 10}}, Block{{0, 3, 0}, {4, 9, 2}}, Block{{2}, {1}},
                             Block{{0, 0, 0, 0}, {2, 2, 3, 2}}, Block{{}, {}}, Block{{0, 1}, {3, 0}}})
    for (const int64_t rounds : {1, 2, 3, 7, 20}) {
      std::map<Shape, int> seen;
      int64_t largest = 0;
      for (int64_t round = 0; round < rounds; ++round) {
        const auto slice = slice_of(block, round, rounds);
        const int64_t count = slice ? element_count(*slice) : 0;
        largest = std::max(largest, count);
        for (int64_t i = 0; i < count; ++i) {
          Shape at = slice->offset;
          for (int64_t axis = std::ssize(at) - 1, rest = i; axis >= 0; --axis) {
            const auto a = static_cast<size_t>(axis);
            at[a] += rest % slice->shape[a], rest /= slice->shape[a];
          }
          ++seen[at];
        }
      }
      EXPECT_EQ(std::ssize(seen), element_count(block));
      for (const auto& [at, times] : seen) EXPECT_EQ(times, 1);
      EXPECT_LE(largest, 4 * element_count(block) / rounds + 1) << "in one round";
      EXPECT_EQ(largest, element_count(*slice_of(block, 0, rounds))) << "the first is the largest: peak() counts on it";
    }
}

TEST(Rounds, are_as_many_as_the_busiest_worker_needs) {
  const TensorStructInfo tensor{{4, 64 << 20}, kUInt8};
  const DeviceMesh mesh({4});
  const auto rounds = [&](const char* from, const char* to) {
    return rounds_of(transition({tensor, mesh, Placement::from_text(from)}, {tensor, mesh, Placement::from_text(to)}));
  };
  EXPECT_EQ(rounds("S[0]", "S[0]"), 1);
  EXPECT_EQ(rounds("S[0]", "S[1]"), 2);  // 48 MiB
  EXPECT_EQ(rounds("S[0]", "R"), 6);     // 192 MiB
}

}  // namespace
