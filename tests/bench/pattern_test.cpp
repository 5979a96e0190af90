#include "bench/pattern.h"

#include <gtest/gtest.h>

#include "bench/collective_report.h"
#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::bench;

TEST(Pattern, writes_what_it_finds_right) {
  for (const DType dtype : {kInt8, kFloat16, kBFloat16, kFloat32, kFloat64, kComplex64})
    for (const bool for_reduction : {false, true})
      for (const int64_t phase : {0, 1, 1000}) {
        const Pattern pattern = Pattern::of_rank(dtype, 3, for_reduction);
        std::vector<char> data(static_cast<size_t>(10000 * dtype.size_bytes()));
        pattern.write(data.data(), 10000, phase);
        EXPECT_EQ(pattern.count_wrong(data.data(), 10000, phase), 0);
        EXPECT_GT(pattern.count_wrong(data.data(), 10000, phase + 1), 3000);  // data of the iteration before
        EXPECT_EQ(pattern.count_wrong(data.data() + 77 * dtype.size_bytes(), 100, phase + 77), 0);
        data[static_cast<size_t>(5000 * dtype.size_bytes())] ^= 64;
        EXPECT_EQ(pattern.count_wrong(data.data(), 10000, phase), 1);
      }
}

TEST(Pattern, of_ranks_differs) {
  std::vector<int32_t> data(251);
  Pattern::of_rank(kInt32, 0, false).write(data.data(), 251, 0);
  EXPECT_EQ(Pattern::of_rank(kInt32, 1, false).count_wrong(data.data(), 251, 0), 251);
}

TEST(Pattern, knows_what_reductions_give) {
  std::vector<float> sum(3), average(3), product(3);
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<size_t>(i);
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<float> one(1);
      Pattern::of_rank(kFloat32, rank, true).write(one.data(), 1, i);
      sum[at] += one[0];
      product[at] = rank == 0 ? one[0] : product[at] * one[0];
    }
    average[at] = sum[at] / 4;
  }
  EXPECT_EQ(Pattern::reduced(kFloat32, 4, ReduceOp::kSum).count_wrong(sum.data(), 3, 0), 0);
  EXPECT_EQ(Pattern::reduced(kFloat32, 4, ReduceOp::kAvg).count_wrong(average.data(), 3, 0), 0);
  EXPECT_EQ(Pattern::reduced(kFloat32, 4, ReduceOp::kProd).count_wrong(product.data(), 3, 0), 0);
  EXPECT_GT(Pattern::reduced(kFloat32, 4, ReduceOp::kMax).count_wrong(sum.data(), 3, 0), 0);
}

TEST(Report, fails_on_wrong_data) {
  CollectiveReport report({.format = "none"}, "allreduce", 2);
  report.add({.size_bytes = 8, .count = 2, .ours = 1.0});
  EXPECT_TRUE(report.finish());
  report.add({.size_bytes = 8, .count = 2, .ours = 1.0, .wrong = 1});
  EXPECT_FALSE(report.finish());
}

TEST(Report, reads_sizes) {
  EXPECT_EQ(parse_size("8"), 8);
  EXPECT_EQ(parse_size("1.5K"), 1536);
  EXPECT_EQ(parse_size("64M"), int64_t{64} << 20);
  for (const char* text : {"", "M", "nan", "inf", "-1", "8X", "8 M", "1e300G"})
    EXPECT_THROW(parse_size(text), UsageError) << text;
}

}  // namespace
