// What parts that workers have are parts of; elements of new tensors.
#include "distributed/join.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <random>

#include "collective/reduce.h"
#include "distributed/element.h"
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti::distributed;
using tutti_test::message_of;

std::vector<TensorStructInfo> parts_of(const DTensorStructInfo& info) {
  std::vector<TensorStructInfo> parts;
  for (const int64_t worker : info.device_mesh().device_ids())
    parts.push_back({info.local(worker).shape, info.tensor_sinfo().dtype});
  return parts;
}

std::string joined(const std::vector<Shape>& shapes, const DeviceMesh& mesh, const std::string& placement) {
  std::vector<TensorStructInfo> parts;
  for (const Shape& shape : shapes) parts.push_back({shape, kFloat32});
  const DTensorStructInfo info = join(parts, mesh, Placement::from_text(placement));
  return to_string(info.tensor_sinfo().shape) + " by " + to_string(info.placement());
}

std::string refusal(const std::vector<Shape>& shapes, const DeviceMesh& mesh, const std::string& placement) {
  return message_of<UsageError>([&] { joined(shapes, mesh, placement); });
}

TEST(Join, parts_give_back_the_tensor) {
  const DeviceMesh mesh({2, 3}, {5, 0, 3, 1, 4, 2});
  for (const char* text :
       {"R, R", "S[0], S[1]", "S[1], S[1]", "S[0], R", "R, S[2]", "P, S[0]", "S[1](7, 2), S[1]", "S[2](0, 4), S[0]"})
    for (const Shape& shape : {Shape{5, 9, 4}, Shape{1, 9, 4}}) {
      const DTensorStructInfo info({shape, kInt8}, mesh, Placement::from_text(text));
      EXPECT_EQ(join(parts_of(info), mesh, info.placement()), info) << text;
    }
}

TEST(Join, other_sizes_make_it_ragged) {
  EXPECT_EQ(joined({{3}, {0}, {5}}, DeviceMesh({3}), "S[0]"), "(8,) by S[0](3, 0, 5)");
  EXPECT_EQ(joined({{2}, {3}}, DeviceMesh({2}), "S[0]"), "(5,) by S[0](2, 3)");
  EXPECT_EQ(joined({{3}, {2}}, DeviceMesh({2}), "S[0]"), "(5,) by S[0]");
  EXPECT_EQ(joined({{1, 4}, {1, 4}, {6, 4}, {6, 4}}, DeviceMesh({2, 2}), "S[0], R"), "(7, 4) by S[0](1, 6), R");
  EXPECT_EQ(joined({{2}, {1}, {0}, {0}}, DeviceMesh({2, 2}), "S[0], S[0]"), "(3,) by S[0](3, 0), S[0]");
}

TEST(Join, what_does_not_fit_names_the_worker) {
  const DeviceMesh mesh({2, 2}, {3, 1, 0, 2});
  EXPECT_NE(refusal({{4}, {4}, {4}, {5}}, mesh, "R, R").find("worker 2's part is float32 of shape (5,), expected shape (4,)"),
            std::string::npos);
  EXPECT_NE(refusal({{4}, {4}, {4}, {4, 1}}, mesh, "R, R").find("worker 2's is float32 of shape (4, 1)"), std::string::npos);
  EXPECT_NE(refusal({{1}, {2}, {2}, {1}}, mesh, "S[0], S[0]").find("expected shape (2,)"), std::string::npos);
  EXPECT_NE(refusal({{1}, {2}, {2}, {1}}, mesh, "S[1], R").find("cuts axis 1"), std::string::npos);
  EXPECT_NE(refusal({{1}, {2}, {2}, {1}}, mesh, "S[0]").find("1 entries"), std::string::npos);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_NE(refusal({{most, 0}, {most, 0}}, DeviceMesh({2}), "S[0]").find("longer than 2^63"), std::string::npos);
  EXPECT_NE(refusal({{4}, {4}}, DeviceMesh({2}), "S[0](3, 5)").find("worker 0's part"), std::string::npos);
}

TEST(Join, all_meshes_and_placements) {
  std::mt19937 random(7);  // NOLINT: the same each time
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 500; ++i) {
    const DeviceMesh mesh({1 + below(3), 1 + below(3), 1 + below(2)});
    std::vector<PlacementSpec> specs;
    for (int dim = 0; dim < 3; ++dim)
      specs.push_back(below(3) == 0 ? PlacementSpec::replica() : PlacementSpec::sharding(below(2)));
    const DTensorStructInfo info({{below(6), below(6)}, kFloat32}, mesh, Placement(specs));
    EXPECT_EQ(join(parts_of(info), mesh, info.placement()), info) << to_string(info);
  }
}

template <class T>
T element(const Value& number) {
  const Bytes bytes = to_element(number, dtype_of<T>());
  T value;
  EXPECT_EQ(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

TEST(Element, numbers) {
  EXPECT_EQ(element<int8_t>(-128), -128);
  EXPECT_EQ(element<uint8_t>(255), 255);
  EXPECT_EQ(element<int64_t>(std::numeric_limits<int64_t>::min()), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(element<uint64_t>(7), 7U);
  EXPECT_EQ(element<float>(0.1), 0.1F);
  EXPECT_EQ(element<double>(true), 1);
  EXPECT_EQ(element<int32_t>(-7.0), -7);
  EXPECT_EQ(element<bool>(1), true);
  for (const auto& [number, dtype] : {std::pair<Value, DType>{128, kInt8},
                                      {-129, kInt8},
                                      {256, kUInt8},
                                      {-1, kUInt64},
                                      {1.5, kInt32},
                                      {2, kBool},
                                      {"1", kFloat32},
                                      {nullptr, kFloat32},
                                      {1, parse_dtype("float8_e4m3fn")},
                                      {1e300, kFloat32},
                                      {1e6, kFloat16},
                                      {-1e39, kBFloat16},
                                      {1e39, kComplex64},
                                      {0x1p63, kInt64},
                                      {1, DType{dl::kInt, 24, 1}}})
    EXPECT_THROW(to_element(number, dtype), UsageError) << to_string(number);
  EXPECT_EQ(to_element(0, parse_dtype("float8_e4m3fn")), Bytes(1));
}

/// 1 + 2^-11 is halfway between two of float16; a little more is not, but is so as a float.
TEST(Element, sixteen_bits_are_rounded_once) {
  const auto half = [](double value) {
    const Bytes bytes = to_element(value, kFloat16);
    return static_cast<int>(bytes[0]) | static_cast<int>(bytes[1]) << 8;
  };
  EXPECT_EQ(half(1), 0x3c00);
  EXPECT_EQ(half(1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(half(1 + 0x1p-11 + 0x1p-40), 0x3c01);
  EXPECT_EQ(half(-1 - 0x1p-11 - 0x1p-40), 0xbc01);
  EXPECT_EQ(half(65519.999), 0x7bff);
  EXPECT_EQ(half(std::numeric_limits<double>::infinity()), 0x7c00);
  EXPECT_EQ(half(std::numeric_limits<double>::quiet_NaN()) & 0x7c00, 0x7c00);
}

/// The generator's published outputs for seed 1234567.
TEST(Element, random_bits_are_those_of_splitmix64) {
  uint64_t bits[5];
  fill_random(reinterpret_cast<std::byte*>(bits), kUInt64, 1234567, 0, 5);
  EXPECT_EQ(std::vector<uint64_t>(bits, bits + 5),
            (std::vector<uint64_t>{6457827717110365317U, 3203168211198807973U, 9817491932198370423U, 4593380528125082431U,
                                   16408922859458223821U}));
  uint64_t later[2];
  fill_random(reinterpret_cast<std::byte*>(later), kUInt64, 1234567, 3, 2);
  EXPECT_EQ(later[0], bits[3]);
  EXPECT_EQ(later[1], bits[4]);
}

TEST(Element, random_floats_lie_below_one) {
  for (const char* name : {"float16", "bfloat16", "float32", "float64"}) {
    const DType dtype = parse_dtype(name);
    std::vector<std::byte> memory(static_cast<size_t>(4000 * dtype.size_bytes()));
    fill_random(memory.data(), dtype, 1, 0, 4000);
    double sum = 0;
    for (int64_t i = 0; i < 4000; ++i) {
      const std::byte* at = memory.data() + i * dtype.size_bytes();
      double value = 0;
      if (dtype == kFloat64) std::memcpy(&value, at, 8);
      else {
        float wide = 0;
        if (dtype == kFloat32) std::memcpy(&wide, at, 4);
        else detail::widen_all(dtype, at, &wide, 1);
        value = wide;
      }
      EXPECT_TRUE(value >= 0 && value < 1) << value;
      sum += value;
    }
    EXPECT_NEAR(sum / 4000, 0.5, 0.03) << name;
  }
  for (const DType none : {parse_dtype("float8_e5m2"), DType{dl::kInt, 24, 1}, DType{dl::kInt, 128, 1}, DType{dl::kFloat, 32, 2}})
    EXPECT_THROW(check_random(none), UsageError);
}

}  // namespace
