// Sharded tensors on every kind of session. Python's suite compares many more with numpy.
#include <gtest/gtest.h>

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
};

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
  s.shutdown();
}

}  // namespace
