#include <gtest/gtest.h>

#include <string>
#include <unordered_set>

#include "support/session_kinds.h"
#include "tutti/distributed.h"
#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::distributed;
using tutti_test::message_of;

template <class F>
void expect_refused(const std::string& why, F&& f) {
  const std::string message = message_of<UsageError>(f);
  EXPECT_NE(message.find(why), std::string::npos) << "expected '" << why << "' in '" << message << "'";
}

TEST(DeviceMesh, places_workers_in_row_major_order) {
  const DeviceMesh mesh({2, 3}, {5, 4, 3, 2, 1, 0});
  EXPECT_EQ(mesh.ndim(), 2);
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.worker({0, 0}), 5);
  EXPECT_EQ(mesh.worker({1, 0}), 2);
  for (const int64_t id : mesh.device_ids()) EXPECT_EQ(mesh.worker(mesh.coordinate(id).value()), id);
  EXPECT_EQ(mesh.coordinate(1), (Shape{1, 1}));
  EXPECT_FALSE(mesh.coordinate(6));
  EXPECT_EQ(DeviceMesh({4}).device_ids(), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(DeviceMesh, is_a_value) {
  const DeviceMesh mesh({2, 2}, {}, {"dp", "tp"});
  EXPECT_EQ(mesh, DeviceMesh({2, 2}, {0, 1, 2, 3}, {"dp", "tp"}));
  EXPECT_NE(mesh, DeviceMesh({2, 2}));
  EXPECT_NE(mesh, DeviceMesh({4}));
  EXPECT_NE(DeviceMesh({2}, {0, 1}), DeviceMesh({2}, {1, 0}));
  EXPECT_EQ(to_string(mesh), "DeviceMesh((2, 2), range(0, 4), names=['dp', 'tp'])");
  EXPECT_EQ(to_string(DeviceMesh({3}, {2, 0, 1})), "DeviceMesh((3,), [2, 0, 1])");
  EXPECT_EQ(mesh.dim("tp"), 1);
  EXPECT_EQ((std::unordered_set<DeviceMesh>{mesh, DeviceMesh({4}), mesh}.size()), 2u);
}

TEST(DeviceMesh, says_what_is_wrong) {
  expect_refused("no dimension", [] { DeviceMesh({}); });
  expect_refused("mesh dimension 1 of shape (2, 0) has 0 workers", [] { DeviceMesh({2, 0}); });
  expect_refused("-1 workers", [] { DeviceMesh({-1}); });
  expect_refused("more than", [] { DeviceMesh({int64_t{1} << 20, int64_t{1} << 20}, {0}); });
  expect_refused("3 device_ids for shape (2, 2), expected 4", [] { DeviceMesh({2, 2}, {0, 1, 2}); });
  expect_refused("worker 1 is there twice", [] { DeviceMesh({3}, {1, 0, 1}); });
  expect_refused("device id -2", [] { DeviceMesh({2}, {0, -2}); });
  expect_refused("1 names for 2 mesh dimensions", [] { DeviceMesh({2, 2}, {}, {"a"}); });
  expect_refused("two mesh dimensions have the name 'a'", [] { DeviceMesh({2, 2}, {}, {"a", "a"}); });
  expect_refused("'a b' is no name", [] { DeviceMesh({2}, {}, {"a b"}); });
  expect_refused("'' is no name", [] { DeviceMesh({2}, {}, {""}); });
  expect_refused("no mesh dimension is called 'x'; names: a, b", [] { DeviceMesh({2, 2}, {}, {"a", "b"}).dim("x"); });
  expect_refused("coordinate (0, 2) lies outside", [] { DeviceMesh({2, 2}).worker({0, 2}); });
  expect_refused("a coordinate (0,) in a mesh of 2 dimensions", [] { DeviceMesh({2, 2}).worker({0}); });
}

TEST(Placement, text_and_back) {
  for (const char* text :
       {"R", "S[0]", "S[0], R", "R, S[1], S[1]", "P", "P(max), S[3]", "S[2](3, 0, 5), R", "S[0](7)", "P(avg), P(avg)"})
    EXPECT_EQ(to_string(Placement::from_text(text)), text);
  EXPECT_EQ(to_string(Placement::from_text("  S [ 1 ] ( 3,0 ) ,R,P ( sum )  ")), "S[1](3, 0), R, P");
}

TEST(Placement, has_the_specs_of_the_text) {
  const Placement placement = Placement::from_text("S[1], R, P(min), S[0](2, 3)");
  EXPECT_EQ(placement, Placement({PlacementSpec::sharding(1), PlacementSpec::replica(), PlacementSpec::partial("min"),
                                  PlacementSpec::ragged(0, {2, 3})}));
  const auto& specs = placement.dim_specs();
  EXPECT_EQ(specs[0].kind(), PlacementSpecKind::kSharding);
  EXPECT_EQ(specs[0].axis(), 1);
  EXPECT_EQ(specs[1].kind(), PlacementSpecKind::kReplica);
  EXPECT_EQ(specs[1].axis(), -1);
  EXPECT_EQ(specs[2].op(), "min");
  EXPECT_FALSE(specs[2].cuts());
  EXPECT_EQ(specs[3].sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_NE(PlacementSpec::sharding(0), PlacementSpec::ragged(0, {2, 3}));
  EXPECT_EQ((std::unordered_set<PlacementSpec>(specs.begin(), specs.end()).size()), 4u);
  EXPECT_EQ(static_cast<int>(PlacementSpecKind::kSharding), 0);  // as TVM numbers them
  EXPECT_EQ(static_cast<int>(PlacementSpecKind::kReplica), 1);
}

TEST(Placement, says_what_is_wrong_and_where) {
  const auto refused = [](const char* text, const std::string& why) { expect_refused(why, [=] { Placement::from_text(text); }); };
  refused("", "expected S[axis], R, or P at position 0, came the end");
  refused("R,", "expected S[axis], R, or P at position 2, came the end");
  refused("R S[0]", "expected a comma, or the end at position 2, came 'S[0]'");
  refused("X", "position 0, came 'X'");
  refused("S", "expected '[' at position 1");
  refused("S[]", "expected a number from 0 to 2147483647 at position 2, came ']'");
  refused("S[-1]", "at position 2, came '-1]'");
  refused("S[2147483648]", "expected a number from 0 to 2147483647");
  refused("S[0", "expected ']' at position 3, came the end");
  refused("S[0]()", "expected a number");
  refused("S[0](1, 2", "expected ')' at position 9");
  refused("S[0](99999999999999999999)", "expected a number");
  refused("P(", "expected ')'");
  refused("P(median)", "median");
  refused("P(sum), P(max)", "reduces by sum and by max");
  expect_refused("cuts axis -1", [] { PlacementSpec::sharding(-1); });
  expect_refused("no sizes", [] { PlacementSpec::ragged(0, {}); });
  expect_refused("size -3", [] { PlacementSpec::ragged(0, {4, -3}); });
  expect_refused("no entries", [] { Placement({}); });
}

TEST(DTensorStructInfo, parts_differ_by_at_most_one) {
  const DTensorStructInfo info({{10}}, DeviceMesh({4}), Placement::from_text("S[0]"));
  const int64_t sizes[] = {3, 3, 2, 2};
  for (int64_t worker = 0, at = 0; worker < 4; at += sizes[worker++])
    EXPECT_EQ(info.local(worker), (Block{{at}, {sizes[worker]}})) << worker;
  EXPECT_EQ(DTensorStructInfo({{2}}, DeviceMesh({4}), Placement::from_text("S[0]")).local(3), (Block{{2}, {0}}));
}

TEST(DTensorStructInfo, several_dimensions_cut_one_axis) {
  const DTensorStructInfo info({{10, 4}}, DeviceMesh({2, 3}, {5, 4, 3, 2, 1, 0}), Placement::from_text("S[0], S[0]"));
  const Shape rows[] = {{0, 2}, {2, 2}, {4, 1}, {5, 2}, {7, 2}, {9, 1}};  // begin, size; by place
  for (int64_t place = 0; place < 6; ++place)
    EXPECT_EQ(info.local(5 - place), (Block{{rows[place][0], 0}, {rows[place][1], 4}})) << place;
}

TEST(DTensorStructInfo, ragged_parts_may_be_cut_again) {
  const DTensorStructInfo info({{8}}, DeviceMesh({3, 2}), Placement::from_text("S[0](3, 0, 5), S[0]"));
  const Shape parts[] = {{0, 2}, {2, 1}, {3, 0}, {3, 0}, {3, 3}, {6, 2}};
  for (int64_t worker = 0; worker < 6; ++worker)
    EXPECT_EQ(info.local(worker), (Block{{parts[worker][0]}, {parts[worker][1]}})) << worker;
}

/// Each element lies on as many workers as the dimensions that do not cut have places.
TEST(DTensorStructInfo, parts_cover_the_tensor) {
  for (const int64_t rows : {0, 1, 2, 5, 13})
    for (const int64_t columns : {0, 1, 3, 8})
      for (const char* text : {"S[0], S[1]", "S[1], S[1]", "R, S[0]", "S[1], P", "R, R", "S[0], S[0]"}) {
        const DTensorStructInfo info({{rows, columns}}, DeviceMesh({3, 2}), Placement::from_text(text));
        std::vector<int> held(static_cast<size_t>(rows * columns));
        int copies = 1;
        for (size_t dim = 0; dim < 2; ++dim)
          if (!info.placement().dim_specs()[dim].cuts()) copies *= static_cast<int>(info.device_mesh().shape()[dim]);
        for (int64_t worker = 0; worker < 6; ++worker) {
          const Block block = info.local(worker);
          for (int64_t row = 0; row < block.shape[0]; ++row)
            for (int64_t column = 0; column < block.shape[1]; ++column)
              ++held.at(static_cast<size_t>((block.offset[0] + row) * columns + block.offset[1] + column));
        }
        for (const int count : held) ASSERT_EQ(count, copies) << rows << " x " << columns << " by " << text;
      }
}

TEST(DTensorStructInfo, says_what_is_wrong) {
  const auto refused = [](Shape shape, const char* text, const std::string& why, DType dtype = kFloat32) {
    expect_refused(why, [&] {
      DTensorStructInfo({shape, dtype}, DeviceMesh({2, 3}, {}, {"dp", "tp"}), Placement::from_text(text));
    });
  };
  refused({4, 4}, "R", "placement 'R' has 1 entries, but the mesh has 2 dimensions");
  refused({4, 4}, "R, S[2]", "mesh dimension 1 ('tp') cuts axis 2, but a tensor of shape (4, 4) has 2 axes");
  refused({}, "S[0], R", "a tensor of shape () has 0 axes");
  refused({4, 4}, "R, S[0](2, 2)", "mesh dimension 1 ('tp') has 3 workers, but 'S[0](2, 2)' has 2 sizes");
  refused({4, 4}, "S[0](1, 2), R", "the sizes of 'S[0](1, 2)' are not axis 0, which has 4");
  refused({4, 4}, "S[0](9223372036854775807, 9223372036854775807), R", "are not axis 0, which has 4");
  refused({4, 4}, "S[0], S[0](2, 2, 0)", "mesh dimension 1 ('tp') cuts axis 0 into parts of given sizes");
  refused({4, 4}, "P, R", "'P' of bool can't be reduced", kBool);
  refused({-1}, "R, R", "negative");
  refused({int64_t{1} << 40, int64_t{1} << 40}, "R, R", "2^63");
  expect_refused("worker 6 is not in DeviceMesh((2, 3), range(0, 6))", [] {
    (void)DTensorStructInfo({{4}}, DeviceMesh({2, 3}), Placement::from_text("R, R")).local(6);
  });
  EXPECT_EQ(DTensorStructInfo({{}, kInt8}, DeviceMesh({1}), Placement::from_text("R")).local(0), (Block{{}, {}}));
}

}  // namespace
