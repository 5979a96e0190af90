#include "collective/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "collective/float16.h"

namespace {

using namespace tutti;

/// The nearest float16 by search: independent of the bit tricks.
float nearest_half(float v) {
  double best = INFINITY, best_value = 0;
  bool best_even = false;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {  // finite, non-negative
    const uint32_t exponent = bits >> 10, mantissa = bits & 0x3ff;
    const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    const double distance = std::abs(value - std::abs(static_cast<double>(v)));
    if (distance < best || (distance == best && bits % 2 == 0 && !best_even)) best = distance, best_value = value, best_even = bits % 2 == 0;
  }
  if (std::abs(v) >= 65520.0f) best_value = INFINITY;
  return static_cast<float>(std::copysign(best_value, v));
}

TEST(Float16, every_value_widens_and_narrows_to_itself) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    const float wide = widen(half);
    if (std::isnan(wide)) EXPECT_TRUE(std::isnan(widen(narrow_half(wide))));
    else EXPECT_EQ(narrow_half(wide).bits, bits);
    const BFloat brain{static_cast<uint16_t>(bits)};
    const float brain_wide = widen(brain);
    if (std::isnan(brain_wide)) EXPECT_TRUE(std::isnan(widen(narrow_bfloat(brain_wide))));
    else EXPECT_EQ(narrow_bfloat(brain_wide).bits, bits);
  }
}

TEST(Float16, rounds_to_nearest_even) {
  for (float v : {1.0f, 1.00048828125f, 1.00146484375f, 65504.0f, 65519.9f, 65520.0f, 1e-8f, 5.96e-8f, 2.98e-8f, 6.1e-5f, 6.09e-5f, -3.14159f, 1e9f, 0.1f})
    EXPECT_EQ(widen(narrow_half(v)), nearest_half(v)) << v;
  EXPECT_EQ(narrow_bfloat(1.00390625f).bits, 0x3f80);  // a tie goes to even
  EXPECT_EQ(narrow_bfloat(1.01171875f).bits, 0x3f82);
}

TEST(Reduce, integers_wrap_and_averages_truncate) {
  const std::vector<int8_t> a = {127, -128, 7}, b = {1, -1, -8};
  std::vector<int8_t> out(3);
  const void* sources[] = {a.data(), b.data()};
  reduce(ReduceOp::kSum, kInt8, sources, 2, out.data(), 3);
  EXPECT_EQ(out, (std::vector<int8_t>{-128, 127, -1}));
  reduce(ReduceOp::kAvg, kInt8, sources, 2, out.data(), 3);
  EXPECT_EQ(out, (std::vector<int8_t>{-64, 63, 0}));
  const std::vector<uint64_t> big = {UINT64_MAX};
  std::vector<uint64_t> half(1);
  const void* one[] = {big.data()};
  reduce(ReduceOp::kMax, kUInt64, one, 1, half.data(), 1);
  EXPECT_EQ(half[0], UINT64_MAX);
}

TEST(Reduce, half_types_are_rounded_once) {
  const std::vector<uint16_t> big = {narrow_half(2048).bits}, small = {narrow_half(1).bits};
  uint16_t out = 0;
  const void* sources[] = {big.data(), small.data(), small.data()};  // 2048 + 1 is 2048 in float16
  reduce(ReduceOp::kSum, kFloat16, sources, 3, &out, 1);
  EXPECT_EQ(widen(Half{out}), 2050.0f);
}

TEST(Reduce, any_alignment_and_long_counts) {
  const int64_t n = 2000;
  std::vector<char> memory(static_cast<size_t>(n) * 8 + 3);
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(i);
    std::memcpy(memory.data() + 3 + i * 8, &v, 8);
  }
  const void* sources[] = {memory.data() + 3, memory.data() + 3};
  reduce(ReduceOp::kSum, kFloat64, sources, 2, memory.data() + 3, n);
  double last = 0;
  std::memcpy(&last, memory.data() + 3 + (n - 1) * 8, 8);
  EXPECT_EQ(last, 2.0 * static_cast<double>(n - 1));
}

TEST(Reduce, knows_what_it_can) {
  EXPECT_FALSE(can_reduce(kBool, ReduceOp::kSum));
  EXPECT_TRUE(can_reduce(kBool, ReduceOp::kMax));
  EXPECT_FALSE(can_reduce(kComplex64, ReduceOp::kMin));
  EXPECT_TRUE(can_reduce(kComplex64, ReduceOp::kProd));
  EXPECT_FALSE(can_reduce(parse_dtype("float8_e4m3"), ReduceOp::kMax));
}

}  // namespace
