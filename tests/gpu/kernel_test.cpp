// Kernels of a module (TUTTI_TEST_KERNELS: kernels.cu, or the stand-ins' of it) in one order with copies and collectives.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "gpu/sessions.h"

namespace {

using namespace tutti;
using namespace tutti_test;
using namespace std::chrono_literals;

class Kernels : public Gpus {
 protected:
  static DModule load(Session& s) { return s.load_vm_module(std::getenv("TUTTI_TEST_KERNELS")); }
};

float a_at(int64_t row, int64_t i) { return static_cast<float>((row + 3 * i) % 7 - 3); }
float b_at(int64_t i, int64_t column) { return static_cast<float>((2 * i + column) % 5 - 2); }

/// Each worker has a part of the inner dimension. Nobody waits between the kernel and the collective.
TEST_F(Kernels, a_product_in_parts) {
  constexpr int64_t kRows = 96, kColumns = 80, kRounds = 20, kPart = 60;
  Session s = make();
  const int64_t n = s.num_workers(), inner = kPart * n;
  Tensor a = Tensor::empty({n, kRows, kPart}), b = Tensor::empty({n, kPart, kColumns});
  float *a_to = a.values<float>().data(), *b_to = b.values<float>().data();
  for (int64_t w = 0; w < n; ++w)
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t i = 0; i < kPart; ++i) *a_to++ = a_at(row, w * kPart + i);
  for (int64_t i = 0; i < inner; ++i)
    for (int64_t column = 0; column < kColumns; ++column) *b_to++ = b_at(i, column);

  const DModule kernels = load(s);
  const DRef mine_a = s.scatter(a), mine_b = s.scatter(b), c = s.empty({kRows, kColumns}, kFloat32);
  for (int64_t round = 0; round < kRounds; ++round) {
    kernels["matmul"](mine_a, mine_b, c);
    s.allreduce(c, c);
  }
  std::vector<float> expected;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t column = 0; column < kColumns; ++column) {
      float sum = 0;
      for (int64_t i = 0; i < inner; ++i) sum += a_at(row, i) * b_at(i, column);
      expected.push_back(sum);  // whole numbers: exact in any order
    }
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(to_vector(c.debug_get_from_remote(w)), expected) << "worker " << w;
}

TEST_F(Kernels, copies_and_collectives_come_after_a_late_kernel) {
  Session s = make();
  const DModule kernels = load(s);
  const auto n = static_cast<float>(s.num_workers());
  const DRef x = s.empty({1000}, kFloat32), sum = s.empty({1000}, kFloat32);
  for (int i = 1; i < 4; ++i) {
    kernels["fill_late"](x, 1.0 * i);
    s.allreduce(x, sum);
    expect_all(s, sum, static_cast<float>(i) * n, 1000);
    kernels["fill_late"](x, 9.0);
    s.copy_to_worker_0(floats(std::vector<float>(1000, 5)), x);  // after the kernel, or its 9 stays
    EXPECT_EQ(to_vector(x.debug_get_from_remote(0)), std::vector<float>(1000, 5));
    kernels["fill_late"](x, 7.0);
    Tensor back = Tensor::empty({1000});
    s.copy_from_worker_0(back, x);
    s.sync_worker(0);
    EXPECT_EQ(to_vector(back), std::vector<float>(1000, 7));
  }
}

TEST_F(Kernels, what_is_dropped_stays_until_its_kernel_is_done) {
  Session s = make();
  const DModule kernels = load(s);
  const DRef kept = s.empty({1 << 20}, kFloat32);
  for (int i = 0; i < 3; ++i) {
    {
      const DRef x = s.empty({1 << 20}, kFloat32);
      kernels["fill_late"](x, 1.0);
    }
    const DRef y = s.empty({1 << 20}, kFloat32);  // the same memory, after it
    kernels["fill_late"](y, 2.0);
    s.allreduce(y, kept, "max");
  }
  expect_all(s, kept, 2, 1 << 20);
}

// last: the device can't be used any more
TEST_F(Kernels, one_that_writes_where_nothing_is_ends_the_session) {
  if (kind() == "mpi") return;  // and the job
  Session s = make();
  const DModule kernels = load(s);
  const DRef x = s.empty({10}, kFloat32);
  s.sync_all();
  kernels["crash"](x);
  const std::string why = message_of<TransportError>([&] { s.sync_all(20s); });
  EXPECT_NE(why.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << why;
  EXPECT_NE(why.find("start the job again"), std::string::npos) << why;
}

}  // namespace
