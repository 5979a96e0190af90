#include "collective/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collective/float16.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

void reduce(ReduceOp op, DType dtype, const std::vector<const void*>& sources, void* dst, int64_t count) {
  std::vector<const char*> from;
  for (const void* source : sources) from.push_back(static_cast<const char*>(source));
  char* const to[] = {static_cast<char*>(dst)};
  detail::reduce(op, dtype, from, to, count);
}

/// The nearest float16 by search: independent of the bit tricks.
float nearest_half(float v) {
  double best = INFINITY, best_value = 0;
  bool best_even = false;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {  // finite, non-negative
    const uint32_t exponent = bits >> 10, mantissa = bits & 0x3ff;
    const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    const double distance = std::abs(value - std::abs(static_cast<double>(v)));
    if (distance < best || (distance == best && bits % 2 == 0 && !best_even))
      best = distance, best_value = value, best_even = bits % 2 == 0;
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
  for (float v : {1.0f, 1.00048828125f, 1.00146484375f, 65504.0f, 65519.9f, 65520.0f, 1e-8f, 5.96e-8f, 2.98e-8f, 6.1e-5f,
                  6.09e-5f, -3.14159f, 1e9f, 0.1f})
    EXPECT_EQ(widen(narrow_half(v)), nearest_half(v)) << v;
  EXPECT_EQ(narrow_bfloat(1.00390625f).bits, 0x3f80);  // a tie goes to even
  EXPECT_EQ(narrow_bfloat(1.01171875f).bits, 0x3f82);
}

TEST(Reduce, integers_wrap_and_averages_truncate) {
  const std::vector<int8_t> a = {127, -128, 7}, b = {1, -1, -8};
  std::vector<int8_t> out(3);
  const std::vector<const void*> sources = {a.data(), b.data()};
  reduce(ReduceOp::kSum, kInt8, sources, out.data(), 3);
  EXPECT_EQ(out, (std::vector<int8_t>{-128, 127, -1}));
  reduce(ReduceOp::kAvg, kInt8, sources, out.data(), 3);
  EXPECT_EQ(out, (std::vector<int8_t>{-64, 63, 0}));
  const std::vector<uint64_t> big = {UINT64_MAX};
  std::vector<uint64_t> half(1);
  const std::vector<const void*> one = {big.data()};
  reduce(ReduceOp::kMax, kUInt64, one, half.data(), 1);
  EXPECT_EQ(half[0], UINT64_MAX);
}

TEST(Reduce, half_types_are_rounded_once) {
  const std::vector<uint16_t> big = {narrow_half(2048).bits}, small = {narrow_half(1).bits};
  uint16_t out = 0;
  const std::vector<const void*> sources = {big.data(), small.data(), small.data()};  // 2048 + 1 is 2048 in float16
  reduce(ReduceOp::kSum, kFloat16, sources, &out, 1);
  EXPECT_EQ(widen(Half{out}), 2050.0f);
}

TEST(Reduce, any_alignment_and_long_counts) {
  const int64_t n = 2000;
  std::vector<char> memory(static_cast<size_t>(n) * 8 + 3);
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(i);
    std::memcpy(memory.data() + 3 + i * 8, &v, 8);
  }
  const std::vector<const void*> sources = {memory.data() + 3, memory.data() + 3};
  reduce(ReduceOp::kSum, kFloat64, sources, memory.data() + 3, n);
  double last = 0;
  std::memcpy(&last, memory.data() + 3 + (n - 1) * 8, 8);
  EXPECT_EQ(last, 2.0 * static_cast<double>(n - 1));
}

/// min or max of two as IEEE 754-2019 says, by sorting; what min_max.h does without branches.
template <class W>
W extreme(ReduceOp op, W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<W>::quiet_NaN();
    if (a == b) return std::signbit(a) == (op == ReduceOp::kMin) ? a : b;
  }
  return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
}

/// What every way through the vectors must give, an element at a time.
template <class T>
T expected(ReduceOp op, const std::vector<std::vector<T>>& sources, size_t i) {
  auto wide = [](T v) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>) return widen(v);
    else return v;
  };
  auto acc = wide(sources[0][i]);
  using W = decltype(acc);
  for (size_t s = 1; s < sources.size(); ++s) {
    const W in = wide(sources[s][i]);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg: acc = static_cast<W>(acc + in); break;
      case ReduceOp::kProd: acc = static_cast<W>(acc * in); break;
      case ReduceOp::kMin:
      case ReduceOp::kMax: acc = extreme(op, acc, in); break;
    }
  }
  if (op == ReduceOp::kAvg) acc = static_cast<W>(acc / static_cast<W>(sources.size()));
  if constexpr (std::is_same_v<T, Half>) return narrow_half(acc);
  else if constexpr (std::is_same_v<T, BFloat>) return narrow_bfloat(acc);
  else return acc;
}

template <class T>
void check_vectors(DType dtype) {
  std::mt19937 random(7);
  for (const size_t num_sources : {1, 2, 3, 5})
    for (const size_t n : {1, 31, 64, 1024, 5000})
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAvg})
        for (const bool in_place : {false, true}) {
          std::vector<std::vector<T>> sources(num_sources, std::vector<T>(n));
          for (auto& source : sources)
            for (T& v : source) {
              const int small = static_cast<int>(random() % 5) + 1;
              if constexpr (std::is_same_v<T, Half>)
                v = random() % 50 ? narrow_half(static_cast<float>(small) / 3) : Half{static_cast<uint16_t>(random() % 0x7c00)};
              else if constexpr (std::is_same_v<T, BFloat>)
                v = random() % 50 ? narrow_bfloat(static_cast<float>(small) / 3)
                                  : BFloat{static_cast<uint16_t>(random() % 0x7f80)};
              else v = static_cast<T>(std::is_floating_point_v<T> ? static_cast<T>(small) / 3 : static_cast<T>(small));
            }
          std::vector<T> want(n), dst(n + 16), other(n);
          for (size_t i = 0; i < n; ++i) want[i] = expected(op, sources, i);
          std::vector<const char*> from;
          for (const auto& source : sources) from.push_back(reinterpret_cast<const char*>(source.data()));
          T* to = in_place ? sources.back().data() : dst.data() + n % 3;
          char* const dsts[] = {reinterpret_cast<char*>(to), reinterpret_cast<char*>(other.data())};
          detail::reduce(op, dtype, from, dsts, static_cast<int64_t>(n));
          ASSERT_EQ(std::memcmp(to, want.data(), n * sizeof(T)), 0)
              << to_string(dtype) << to_string(op) << n << " " << num_sources;
          ASSERT_EQ(std::memcmp(other.data(), want.data(), n * sizeof(T)), 0);
        }
}

TEST(Reduce, vectors_give_what_single_elements_do) {
  check_vectors<int8_t>(kInt8);
  check_vectors<uint8_t>(kUInt8);
  check_vectors<int16_t>(kInt16);
  check_vectors<uint16_t>(kUInt16);
  check_vectors<int32_t>(kInt32);
  check_vectors<uint32_t>(kUInt32);
  check_vectors<int64_t>(kInt64);
  check_vectors<uint64_t>(kUInt64);
  check_vectors<float>(kFloat32);
  check_vectors<double>(kFloat64);
  check_vectors<Half>(kFloat16);
  check_vectors<BFloat>(kBFloat16);
}

/// Every bit pattern with others, beside numbers and beside each other: what is no number stays none, and spoils no neighbour.
template <class T>
void check_every_pattern(DType dtype) {
  constexpr size_t n = 65536;
  std::vector<std::vector<T>> sources(2, std::vector<T>(n));
  for (size_t i = 0; i < n; ++i) {
    sources[0][i] = T{static_cast<uint16_t>(i)};
    sources[1][i] = T{static_cast<uint16_t>(i * 257 + i / 256)};
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAvg})
    for (const size_t num_dsts : {1, 2}) {
      std::vector<std::vector<T>> dsts(num_dsts, std::vector<T>(n));
      std::vector<char*> to;
      for (auto& dst : dsts) to.push_back(reinterpret_cast<char*>(dst.data()));
      const char* const from[] = {reinterpret_cast<const char*>(sources[0].data()),
                                  reinterpret_cast<const char*>(sources[1].data())};
      detail::reduce(op, dtype, from, to, n);
      for (const auto& dst : dsts)
        for (size_t i = 0; i < n; ++i) {
          const T want = expected(op, sources, i);
          const bool which = op == ReduceOp::kMin || op == ReduceOp::kMax;  // these say also which NaN
          if (!which && std::isnan(widen(want))) ASSERT_TRUE(std::isnan(widen(dst[i]))) << to_string(dtype) << to_string(op) << i;
          else ASSERT_EQ(dst[i].bits, want.bits) << to_string(dtype) << to_string(op) << i;
        }
    }
}

TEST(Reduce, halves_that_are_no_numbers_stay_so) {
  check_every_pattern<Half>(kFloat16);
  check_every_pattern<BFloat>(kBFloat16);
}

/// Every pair and triple of special values, in every order: in the vectors and in what they leave over.
template <class T>
void check_special_values(DType dtype, auto wide) {
  using Limits = std::numeric_limits<decltype(wide)>;
  constexpr auto kNan = Limits::quiet_NaN(), kInf = Limits::infinity();
  const decltype(wide) values[] = {kNan, -kNan, -0.0f, 0.0f, -1, 2, kInf, -kInf};
  const auto special = [&](size_t i) {
    if constexpr (std::is_same_v<T, Half>) return narrow_half(values[i % 8]);
    else if constexpr (std::is_same_v<T, BFloat>) return narrow_bfloat(values[i % 8]);
    else return values[i % 8];
  };
  for (const size_t num_sources : {2, 3})
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax})
      for (const size_t n : {7, 512, 8 * 8 * 8 * 3 + 5}) {
        std::vector<std::vector<T>> sources(num_sources, std::vector<T>(n));
        for (size_t i = 0; i < n; ++i)
          for (size_t s = 0, of = i; s < num_sources; ++s, of /= 8) sources[s][i] = special(of);
        std::vector<T> got(n);
        std::vector<const void*> from;
        for (const auto& source : sources) from.push_back(source.data());
        reduce(op, dtype, from, got.data(), static_cast<int64_t>(n));
        for (size_t i = 0; i < n; ++i) {
          const T want = expected(op, sources, i);
          ASSERT_EQ(std::memcmp(&got[i], &want, sizeof want), 0)
              << to_string(dtype) << to_string(op) << n << " " << i << " of " << num_sources;
        }
      }
}

TEST(Reduce, min_and_max_keep_nan_and_order_zeros) {
  check_special_values<float>(kFloat32, 0.0f);
  check_special_values<double>(kFloat64, 0.0);
  check_special_values<Half>(kFloat16, 0.0f);
  check_special_values<BFloat>(kBFloat16, 0.0f);
}

TEST(Reduce, knows_what_it_can) {
  EXPECT_FALSE(can_reduce(kBool, ReduceOp::kSum));
  EXPECT_TRUE(can_reduce(kBool, ReduceOp::kMax));
  EXPECT_FALSE(can_reduce(kComplex64, ReduceOp::kMin));
  EXPECT_TRUE(can_reduce(kComplex64, ReduceOp::kProd));
  EXPECT_FALSE(can_reduce(parse_dtype("float8_e4m3"), ReduceOp::kMax));
}

}  // namespace
