// Sharded tensors on every kind of session. Python's suite compares many more with numpy.
#include <gtest/gtest.h>

#include "support/failures.h"
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti::distributed;
using namespace tutti_test;

const bool registered[] = {
    register_global_func("dtensor.throw_on",
                         [](int worker, const Tensor& part) {
                           if (worker::id() == worker) throw std::runtime_error("thrown on purpose");
                           return part;
                         }),
    register_global_func("dtensor.place",
                         [](const Tensor& part, int64_t number) {
                           const ShardContext& here = shard_context();
                           const Block block = here.local(0);
                           return List{Tensor::from<int64_t>({number, block.offset[0], block.shape[0]}, {3, 1}),
                                       Tensor::from<int64_t>({here.coordinate[0]}), part};
                         }),
    register_global_func("dtensor.sum_along",
                         [](const Tensor& part, const std::string& dim) {
                           const Tensor sum = Tensor::like(part);
                           shard_context().comm(dim).allreduce(part, sum);
                           return sum;
                         }),
    register_global_func("dtensor.nothing", [](const Tensor&) {}),
    register_global_func("dtensor.count", [](const Tensor& part) { return part.element_count(); }),
};

/// The last worker has the axis.
std::vector<int64_t> ragged_sizes(int64_t extent) {
  std::vector<int64_t> sizes(static_cast<size_t>(workers()));
  sizes.back() = extent;
  return sizes;
}

DeviceMesh all() { return DeviceMesh({workers()}); }

std::vector<float> part(const DTensor& tensor, int worker) { return to_vector(tensor.parts().debug_get_from_remote(worker)); }

TEST(DTensor, rows_become_columns) {
  Session s = make_session();
  const DTensor rows = distribute(s, floats(iota(35), {7, 5}), all(), Placement::from_text("S[0]"));
  const DTensor columns = rows.redistribute(Placement::from_text("S[1]"));
  for (int worker = 0; worker < workers(); ++worker) {
    const Block block = columns.info().local(worker);
    std::vector<float> expected;
    for (int row = 0; row < 7; ++row)
      for (int64_t column = 0; column < block.shape[1]; ++column)
        expected.push_back(static_cast<float>(row * 5 + block.offset[1] + column));
    EXPECT_EQ(part(columns, worker), expected) << worker;
  }
  EXPECT_EQ(to_vector(columns.full()), iota(35));
  EXPECT_EQ(to_vector(rows.full()), iota(35));  // as it was
}

TEST(DTensor, another_mesh_and_its_order) {
  Session s = make_session();
  std::vector<int64_t> backwards;
  for (int worker = workers(); worker-- > 0;) backwards.push_back(worker);
  const DTensor one = distribute(s, floats(iota(10)), DeviceMesh({1}, {workers() - 1}), Placement::from_text("R"));
  if (workers() > 1) {
    EXPECT_TRUE(one.parts().debug_get_from_remote(0).is_none());
  }
  const DTensor cut = one.redistribute(Placement::from_text("S[0]"), DeviceMesh({workers()}, backwards));
  EXPECT_EQ(part(cut, workers() - 1).at(0), 0);
  EXPECT_EQ(to_vector(cut.full()), iota(10));
}

TEST(DTensor, a_sum_over_the_workers) {
  Session s = make_session();
  const DRef parts = s.broadcast(floats(iota(6), {2, 3}));
  const DTensor partial(parts, DTensorStructInfo({{2, 3}}, all(), Placement::from_text("P")));
  std::vector<float> expected = iota(6);
  for (float& x : expected) x *= static_cast<float>(workers());
  EXPECT_EQ(to_vector(partial.full()), expected);
  const DTensor everywhere = partial.redistribute(Placement::from_text("R"));
  for (int worker = 0; worker < workers(); ++worker) EXPECT_EQ(part(everywhere, worker), expected);
}

TEST(DTensor, works_in_a_session_of_groups) {
  for (const int groups : group_counts()) {
    Session s = make_session(groups);
    EXPECT_EQ(to_vector(distribute(s, floats(iota(9)), all(), Placement::from_text("S[0]")).full()), iota(9));
  }
}

TEST(DTensor, a_worker_that_fails_leaves_the_session) {
  Session s = make_session();
  const DTensor whole = distribute(s, floats(iota(12)), all(), Placement::from_text("S[0]"));
  const DTensor broken(s.call_packed(s.get_global_func("dtensor.throw_on"), workers() - 1, whole.parts()), whole.info());
  const std::string message = message_of<RemoteError>([&] { (void)broken.redistribute(Placement::from_text("R")).full(); });
  EXPECT_NE(message.find("thrown on purpose"), std::string::npos) << message;
  EXPECT_EQ(to_vector(whole.redistribute(Placement::from_text("R")).full()), iota(12));
}

TEST(DTensor, a_function_on_parts) {
  Session s = make_session();
  const DTensor rows = distribute(s, floats(iota(14), {7, 2}), all(), Placement::from_text("S[0]"));
  const ShardMap place(s.get_global_func("dtensor.place"), all(), {Placement::from_text("S[0]"), std::nullopt},
                       {Placement::from_text("S[1]"), Placement::from_text("S[0]"), Placement::from_text("S[0]")});
  for (const DTensor& source : {rows, rows.redistribute(Placement::from_text("S[1]"))}) {  // the other is redistributed
    const auto results = place({source, Value(5)});
    ASSERT_EQ(results.size(), 3U);
    EXPECT_EQ(results[0].info().tensor_sinfo(), (TensorStructInfo{{3, workers()}, kInt64}));
    const Tensor told = results[0].full();
    const Tensor coordinates = results[1].full();
    for (int worker = 0; worker < workers(); ++worker) {
      const Block block = rows.local(worker);
      EXPECT_EQ(told.values<int64_t>()[static_cast<size_t>(worker)], 5);
      EXPECT_EQ(told.values<int64_t>()[static_cast<size_t>(workers() + worker)], block.offset[0]);
      EXPECT_EQ(told.values<int64_t>()[static_cast<size_t>(2 * workers() + worker)], block.shape[0]);
      EXPECT_EQ(coordinates.values<int64_t>()[static_cast<size_t>(worker)], worker);
    }
    EXPECT_EQ(to_vector(results[2].full()), iota(14));
    EXPECT_EQ(results[2].info(), rows.info());
  }
  EXPECT_THROW(shard_context(), UsageError);
}

TEST(DTensor, one_function_on_tensors_of_many_kinds) {
  Session s = make_session();
  const ShardMap same(s.get_global_func("dtensor.throw_on"), all(), {std::nullopt, Placement::from_text("S[0]")},
                      {Placement::from_text("S[0]")});
  for (int rows = 0; rows < 70; ++rows)  // more than are kept
    for (int turn = 0; turn < 2; ++turn) {
      const DTensor x = full(s, {{{rows, 2}, turn == 0 ? kFloat32 : kInt16}, all(), Placement::from_text("S[0]")}, rows);
      const DTensor y = same({Value(-1), x}).front();
      ASSERT_EQ(y.info(), x.info());
    }
}

TEST(DTensor, a_function_that_returns_numbers) {
  Session s = make_session();
  const ShardMap count(s.get_global_func("dtensor.count"), all(), {Placement::from_text("S[0]")}, {Placement::from_text("P")});
  const DTensor sum = count({distribute(s, floats(iota(11)), all(), Placement::from_text("S[0]"))}).front();
  EXPECT_EQ(sum.info().tensor_sinfo(), (TensorStructInfo{{}, kInt64}));
  EXPECT_EQ(sum.full().item<int64_t>(), 11);
}

TEST(DTensor, results_are_held_against_what_was_told) {
  Session s = make_session();
  const DTensor x = distribute(s, floats(iota(6)), all(), Placement::from_text("S[0]"));
  const ShardMap same(s.get_global_func("dtensor.throw_on"), all(), {std::nullopt, Placement::from_text("S[0]")},
                      {Placement::from_text("S[0]")});
  EXPECT_EQ(to_vector(same({Value(-1), x}, {{{6}, kFloat32}}).front().full()), iota(6));
  same({Value(-1), x}, {{{60}, kFloat32}});
  const std::string message = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(message.find("expected float32 of shape"), std::string::npos) << message;
  EXPECT_NE(message.find("dtensor.throw_on"), std::string::npos) << message;
  EXPECT_EQ(to_vector(same({Value(-1), x}).front().full()), iota(6));
}

/// Parts of 64 KiB and more are read where they lie.
TEST(DTensor, large_parts) {
  Session s = make_session();
  const int64_t rows = 263, columns = 128 * workers();
  std::vector<int32_t> numbers(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
  const Tensor array = Tensor::from<int32_t>(std::span<const int32_t>(numbers), {rows, columns});
  std::vector<Placement> placements;
  for (const char* text : {"S[0]", "S[1]", "R", "P", "P(max)"}) placements.push_back(Placement::from_text(text));
  std::vector<int64_t> all_on_last(static_cast<size_t>(workers()));
  all_on_last.back() = columns;
  placements.push_back(Placement({PlacementSpec::ragged(1, all_on_last)}));
  for (const Placement& from : placements) {
    const DTensor x = distribute(s, array, all(), from);
    for (const Placement& to : placements) {
      const DTensor y = x.redistribute(to);
      ASSERT_TRUE(Value(y.full()) == Value(array)) << to_string(from) << " to " << to_string(to);
    }
  }
  // a worker throws, or its part is lost, before an exchange of that kind
  const DTensor x = distribute(s, array, all(), placements[0]);
  const DTensor broken(s.call_packed(s.get_global_func("dtensor.throw_on"), workers() - 1, x.parts()), x.info());
  EXPECT_NE(message_of<RemoteError>([&] { (void)broken.redistribute(placements[1]).full(); }).find("on purpose"),
            std::string::npos);
  EXPECT_TRUE(Value(x.redistribute(placements[1]).full()) == Value(array));
}

TEST(DTensor, a_function_on_a_part_of_the_workers) {
  Session s = make_session();
  const DeviceMesh last({1}, {workers() - 1});
  const DTensor row = distribute(s, floats(iota(4)), all(), Placement::from_text("S[0]"));
  const ShardMap sum(s.get_global_func("dtensor.sum_along"), DeviceMesh({1}, {workers() - 1}, {"only"}),
                     {Placement::from_text("R"), std::nullopt}, {Placement::from_text("R")});
  const DTensor result = sum({row, Value("only")}, {{{4}, kFloat32}}).front();
  EXPECT_EQ(to_vector(result.full()), iota(4));
  if (workers() > 1) {
    EXPECT_TRUE(result.parts().debug_get_from_remote(0).is_none());
  }
}

TEST(DTensor, a_function_along_one_dimension) {
  Session s = make_session();
  const int down = workers() % 2 == 0 ? 2 : 1;
  const DeviceMesh mesh({down, workers() / down}, {}, {"down", "across"});
  const DTensor ones = full(s, {{{2, 3}}, mesh, Placement::from_text("R, R")}, 1);
  for (const char* name : {"down", "across"}) {
    const ShardMap sum(s.get_global_func("dtensor.sum_along"), mesh, {Placement::from_text("R, R"), std::nullopt},
                       {Placement::from_text("R, R")});
    const auto members = static_cast<float>(mesh.shape()[static_cast<size_t>(mesh.dim(name))]);
    EXPECT_EQ(to_vector(sum({ones, Value(name)}).front().full()), std::vector<float>(6, members)) << name;
  }
}

TEST(DTensor, a_function_that_fails_on_one_worker) {
  Session s = make_session();
  const DTensor whole = distribute(s, floats(iota(6)), all(), Placement::from_text("S[0]"));
  const ShardMap fails(s.get_global_func("dtensor.throw_on"), all(), {std::nullopt, Placement::from_text("S[0]")},
                       {Placement::from_text("S[0]")});
  const std::string message = message_of<RemoteError>([&] { fails({Value(workers() - 1), whole}); });
  EXPECT_NE(message.find("thrown on purpose"), std::string::npos) << message;
  EXPECT_NE(message.find("dtensor.throw_on"), std::string::npos) << message;
  EXPECT_EQ(to_vector(fails({Value(-1), whole}).front().full()), iota(6));
  const ShardMap nothing(s.get_global_func("dtensor.nothing"), all(), {Placement::from_text("S[0]")},
                         {Placement::from_text("S[0]")});
  const std::string none = message_of<RemoteError>([&] { nothing({whole}); });
  EXPECT_NE(none.find("dtensor.nothing: it has returned None"), std::string::npos) << none;
  const ShardMap two(s.get_global_func("dtensor.throw_on"), all(), {std::nullopt, Placement::from_text("S[0]")},
                     {Placement::from_text("S[0]"), Placement::from_text("R")});
  const std::string list = message_of<RemoteError>([&] { two({Value(-1), whole}); });
  EXPECT_NE(list.find("expected a list of 2"), std::string::npos) << list;
  EXPECT_EQ(to_vector(whole.full()), iota(6));
}

TEST(DTensor, parts_that_workers_have) {
  Session s = make_session();
  const DTensor rows = distribute(s, floats(iota(10), {5, 2}), all(), Placement::from_text("S[0]"));
  EXPECT_EQ(DTensor::from_local(rows.parts(), all(), Placement::from_text("S[0]")).info(), rows.info());
  const DTensor odd(rows.redistribute(Placement({PlacementSpec::ragged(0, ragged_sizes(5))})));
  const DTensor again = DTensor::from_local(odd.parts(), all(), Placement::from_text("S[0]"));
  EXPECT_EQ(again.info(), workers() > 1 ? odd.info() : rows.info());
  const DRef number = s.call_packed(s.get_global_func("runtime.disco.worker_rank"));
  const std::string message = message_of<RemoteError>([&] { DTensor::from_local(number, all(), Placement::from_text("R")); });
  EXPECT_NE(message.find("expected a tensor"), std::string::npos) << message;
  if (workers() > 1) {
    const std::string differ =
        message_of<RemoteError>([&] { DTensor::from_local(odd.parts(), all(), Placement::from_text("R")); });
    EXPECT_NE(differ.find("expected shape"), std::string::npos) << differ;
  }
  EXPECT_EQ(to_vector(odd.full()), iota(10));
}

TEST(DTensor, views_of_axes) {
  Session s = make_session();
  const DTensor rows = distribute(s, floats(iota(30), {5, 6}), all(), Placement::from_text("S[0]"));
  std::vector<float> every_other, column;
  for (int row = 0; row < 5; ++row) {
    for (int i = 1; i < 6; i += 2) every_other.push_back(static_cast<float>(row * 6 + i));
    column.push_back(static_cast<float>(row * 6 + 4));
  }
  EXPECT_EQ(to_vector(rows.slice(1, 1, 6, 2).full()), every_other);
  EXPECT_EQ(to_vector(rows.select(1, 4).full()), column);
  EXPECT_EQ(rows.slice(1, 2, 2).info().tensor_sinfo().shape, (Shape{5, 0}));
  const DTensor columns = rows.redistribute(Placement::from_text("S[1]"));
  const DTensor row = columns.select(0, 2);
  EXPECT_EQ(to_string(row.info().placement()), "S[0]");
  EXPECT_EQ(to_vector(row.full()), iota(6, 12));
  EXPECT_EQ(to_vector(rows.slice(0, 1, 5, 3).full()), to_vector(columns.slice(0, 1, 5, 3).full()));
  EXPECT_EQ(to_vector(rows.slice(0, 1, 5, std::numeric_limits<int64_t>::max()).full()), iota(6, 6));
  EXPECT_EQ(to_string(rows.select(0, 2).info().placement()), "R");
  EXPECT_EQ(to_vector(rows.select(0, 2).full()), iota(6, 12));
  EXPECT_THROW(rows.slice(0, 0, 6), UsageError);
  EXPECT_THROW(rows.select(1, 6), UsageError);
  EXPECT_THROW(rows.slice(2, 0, 1), UsageError);
  EXPECT_THROW(rows.slice(1, 0, 1, 0), UsageError);
}

TEST(DTensor, transposed_views) {
  Session s = make_session();
  const DTensor rows = distribute(s, floats(iota(24), {2, 3, 4}), all(), Placement::from_text("S[1]"));
  const DTensor turned = rows.transpose({2, 0, 1});
  EXPECT_EQ(to_string(turned.info().placement()), "S[2]");
  EXPECT_EQ(turned.info().tensor_sinfo().shape, (Shape{4, 2, 3}));
  std::vector<float> expected;
  for (int k = 0; k < 4; ++k)
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j) expected.push_back(static_cast<float>((i * 3 + j) * 4 + k));
  EXPECT_EQ(to_vector(turned.full()), expected);
  EXPECT_EQ(to_vector(turned.redistribute(Placement::from_text("S[0]")).transpose({1, 2, 0}).full()), iota(24));
  EXPECT_EQ(rows.transpose().info().tensor_sinfo().shape, (Shape{4, 3, 2}));
  const DTensor ragged = rows.redistribute(Placement({PlacementSpec::ragged(0, ragged_sizes(2))}));
  EXPECT_EQ(ragged.transpose().info().placement().dim_specs()[0], PlacementSpec::ragged(2, ragged_sizes(2)));
  EXPECT_EQ(to_vector(ragged.transpose().transpose().full()), iota(24));
  for (const std::vector<int>& axes : {std::vector{0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}})
    EXPECT_THROW(rows.transpose(axes), UsageError);
}

TEST(DTensor, parts_that_a_function_makes_of_parts) {
  Session s = make_session();
  const DTensor rows = distribute(s, floats(iota(35), {7, 5}), all(), Placement::from_text("S[0]"));
  const DTensor same = map_parts("dtensor.throw_on", {Value(-1), rows}, rows.info());
  EXPECT_EQ(to_vector(same.full()), iota(35));
  const DTensor one = distribute(s, floats(iota(4)), DeviceMesh({1}, {workers() - 1}), Placement::from_text("R"));
  const DTensor counts = map_parts("dtensor.count", {one}, {{{}, kInt64}, one.info().device_mesh(), Placement::from_text("R")});
  EXPECT_EQ(counts.full().item<int64_t>(), 4);
  map_parts("dtensor.throw_on", {Value(workers() - 1), rows}, rows.info());
  EXPECT_NE(std::string(error_of_sync_all(s).what()).find("thrown on purpose"), std::string::npos);
  map_parts("dtensor.throw_on", {Value(-1), rows}, {{{7, 4}, kFloat32}, all(), Placement::from_text("S[0]")});
  EXPECT_NE(std::string(error_of_sync_all(s).what()).find("dtensor.throw_on"), std::string::npos);
  map_parts("no.such", {rows}, rows.info());
  EXPECT_NE(std::string(error_of_sync_all(s).what()).find("no.such"), std::string::npos);
  EXPECT_THROW(map_parts("dtensor.count", {Value(1)}, rows.info()), UsageError);
  if (workers() > 1) {
    EXPECT_THROW(map_parts("dtensor.count", {one}, rows.info()), UsageError);
  }
  EXPECT_EQ(to_vector(rows.full()), iota(35));
}

TEST(DTensor, new_tensors) {
  Session s = make_session();
  const DTensorStructInfo rows({{5, 3}}, all(), Placement::from_text("S[0]"));
  EXPECT_EQ(to_vector(zeros(s, rows).full()), std::vector<float>(15));
  EXPECT_EQ(to_vector(full(s, rows, 2.5).full()), std::vector<float>(15, 2.5));
  EXPECT_EQ(empty(s, rows).full().shape(), (Shape{5, 3}));
  const std::vector<float> values = to_vector(random(s, rows, 3).full());
  for (const char* text : {"R", "S[1]", "P"})
    EXPECT_EQ(to_vector(random(s, {{{5, 3}}, all(), Placement::from_text(text)}, 3).full()), values) << text;
  EXPECT_NE(to_vector(random(s, rows, 4).full()), values);
  EXPECT_THROW(full(s, rows, "1"), UsageError);
  EXPECT_THROW(zeros(s, {{{5, 3}}, all(), Placement::from_text("P(avg)")}), UsageError);
  EXPECT_THROW(zeros(s, {{{5, 3}}, DeviceMesh({workers() + 1}), Placement::from_text("R")}), UsageError);
}

TEST(DTensor, says_what_is_wrong) {
  Session s = make_session();
  const auto refused = [&](const std::string& why, auto&& f) {
    const std::string message = message_of<UsageError>(f);
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  refused("is not in this session", [&] { distribute(s, floats({1}), DeviceMesh({workers() + 1}), Placement::from_text("R")); });
  refused("the array is empty", [&] { distribute(s, Tensor(), all(), Placement::from_text("R")); });
  refused("DRef is empty", [&] {
    DTensor({}, DTensorStructInfo({{1}}, all(), Placement::from_text("R"))).redistribute(Placement::from_text("R"));
  });
  const DTensor whole = distribute(s, floats({1}), all(), Placement::from_text("R"));
  const DPackedFunc func = s.get_global_func("dtensor.nothing");
  const auto map = [&](const char* in, const DeviceMesh& mesh = all()) {
    return ShardMap(func, mesh, {Placement::from_text(in)}, {});
  };
  refused("from_local: the placement is 'R, R', which has 2 entries",
          [&] { DTensor::from_local(whole.parts(), all(), Placement::from_text("R, R")); });
  refused("shard_map: the DRef is empty", [&] { ShardMap({}, all(), {}, {}); });
  refused("in_placements[0] is 'R, R', which has 2 entries", [&] { map("R, R"); });
  refused("is not in this session", [&] { map("R", DeviceMesh({workers() + 1})); });
  refused("0 arguments, but in_placements has 1", [&] { map("R")({}); });
  refused("argument 0 is no DTensor, but in_placements[0] is 'R'", [&] { map("R")({Value(1)}); });
  refused("argument 0 is a DTensor, but in_placements[0] is nothing",
          [&] { ShardMap(func, all(), {std::nullopt}, {})({whole}); });
  refused("out_sinfos has 1 entries, but out_placements has 0", [&] { map("R")({whole}, {{{1}}}); });
  EXPECT_TRUE(map("R")({whole}).empty());
  s.shutdown();
}

}  // namespace
