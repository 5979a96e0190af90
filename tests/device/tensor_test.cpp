#include "tutti/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tutti/error.h"

namespace {

using namespace tutti;

TEST(Tensor, is_row_major_and_aligned) {
  Tensor t = Tensor::empty({2, 3, 4}, kFloat64);
  EXPECT_EQ(t.strides(), (Shape{12, 4, 1}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data()) % 64, 0u);
  EXPECT_EQ(t.size_bytes(), 192);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(Tensor::empty({}, kInt8).element_count(), 1);
  EXPECT_EQ(Tensor::empty({0, 5}, kInt8).element_count(), 0);
  EXPECT_TRUE(Tensor::empty({0, int64_t{1} << 40, int64_t{1} << 40}, kInt8).is_contiguous());
}

constexpr Device kOther{8, 3};  // Metal's

TEST(Tensor, memory_of_a_device_without_a_back_end_is_not_touched) {
  int x = 0;
  const Tensor there = Tensor::wrap(&x, {1}, kInt32, {}, {}, kOther), here = Tensor::from<int32_t>({1});
  EXPECT_THROW(here.copy_from(there), UsageError);
  EXPECT_THROW(there.copy_from(here), UsageError);
  EXPECT_EQ(x, 0);
  EXPECT_EQ(here.item<int32_t>(), 1);
}

TEST(Tensor, views_share_memory_and_keep_strides_and_offset) {
  Tensor t = Tensor::from<int32_t>({0, 1, 2, 3, 4, 5}, {2, 3});
  Tensor row = t.slice(1, 2);
  EXPECT_TRUE(row.shares_memory_with(t));
  EXPECT_EQ(row.byte_offset(), 12u);
  EXPECT_EQ(row.values<int32_t>()[0], 3);
  Tensor column = t.view({2}, {3}, 4);
  EXPECT_FALSE(column.is_contiguous());
  EXPECT_THROW(column.values<int32_t>(), UsageError);
  const Tensor dense = column.contiguous();
  EXPECT_EQ(dense.values<int32_t>()[0], 1);
  EXPECT_EQ(dense.values<int32_t>()[1], 4);
  EXPECT_THROW(t.view({3, 3}, {3, 1}, 0), UsageError);
  EXPECT_THROW(t.slice(1, 3), UsageError);
  EXPECT_THROW(t.reshape({4}), UsageError);
}

TEST(Tensor, refuses_what_cannot_be) {
  EXPECT_THROW(Tensor::empty({-1}, kInt8), UsageError);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 62, 4}, kInt8), UsageError);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 62}, kFloat64), UsageError);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 55}, kInt8), SystemError);
  EXPECT_THROW(Tensor::empty({1}, kInt8, kOther), UsageError);
  EXPECT_THROW(Tensor::empty({1}, kInt8, cuda(1000)), Error);  // no driver, or not as many
  EXPECT_THROW(Tensor::wrap(nullptr, {1}, kInt8), UsageError);
  for (const char* name : {"float33", "float16x", "float16x1", "x4", "float16x-4", "float16x4 ", "float16x65536", "float16x4x2"})
    EXPECT_THROW(parse_dtype(name), UsageError) << name;
}

TEST(Tensor, wrapped_memory_is_released_once_by_the_last_handle) {
  int released = 0;
  float memory[4] = {1, 2, 3, 4};
  {
    Tensor t = Tensor::wrap(memory, {4}, kFloat32, [&] { ++released; });
    Tensor view = t.slice(2, 4);
    t = Tensor();
    EXPECT_EQ(released, 0);
    EXPECT_EQ(view.values<float>()[0], 3);
  }
  EXPECT_EQ(released, 1);
}

TEST(Tensor, poison_is_shared_by_views) {
  Tensor t = Tensor::empty({4}, kFloat32), view = t.slice(0, 1);
  view.poison({2, 9});
  ASSERT_NE(t.poisoned(), nullptr);
  EXPECT_EQ(t.poisoned()->seq, 9u);
  t.clear_poison();
  EXPECT_EQ(view.poisoned(), nullptr);
}

TEST(DType, names_round_trip) {
  for (const char* name : {"int8", "uint64", "float16", "bfloat16", "bool", "complex128", "float8_e4m3fn", "float16x4",
                           "complex64x2", "float8_e4m3fnx16"})
    EXPECT_EQ(to_string(parse_dtype(name)), name);
}

TEST(Tensor, knows_whose_memory_it_is) {
  float memory[4] = {};
  EXPECT_TRUE(Tensor::wrap(memory, {4}, kFloat32).is_foreign());
  EXPECT_TRUE(Tensor::wrap(memory, {4}, kFloat32).slice(1, 2).is_foreign());
  EXPECT_FALSE(Tensor::empty({4}, kFloat32).is_foreign());
  EXPECT_FALSE(Tensor().is_foreign());
}

}  // namespace
