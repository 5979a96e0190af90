// tensor_parallel MODULE [THREADS]: a product of matrices, each worker with a part of the inner dimension: a kernel of the module
// (matmul.cu), and an allreduce after it. Nobody waits in between.
#include <cstdio>
#include <string>

#include "tutti/tutti.h"

namespace {

using namespace tutti;

float a_at(int64_t row, int64_t i) { return static_cast<float>((row + 3 * i) % 7 - 3); }
float b_at(int64_t i, int64_t column) { return static_cast<float>((2 * i + column) % 5 - 2); }

int multiply(Session s, const char* module) {
  constexpr int64_t kRows = 96, kInner = 240, kColumns = 80, kRounds = 20;  // 240 divides by 1 to 6 and 8
  const int64_t workers = s.num_workers(), part = kInner / workers;
  Tensor a = Tensor::empty({workers, kRows, part}), b = Tensor::empty({workers, part, kColumns});
  float *a_to = a.values<float>().data(), *b_to = b.values<float>().data();
  for (int64_t w = 0; w < workers; ++w)
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t i = 0; i < part; ++i) *a_to++ = a_at(row, w * part + i);
  for (int64_t i = 0; i < part * workers; ++i)
    for (int64_t column = 0; column < kColumns; ++column) *b_to++ = b_at(i, column);

  s.init_ccl("nccl");
  const DModule kernels = s.load_vm_module(module);
  const DRef mine_a = s.scatter(a), mine_b = s.scatter(b), c = s.empty({kRows, kColumns}, kFloat32);
  for (int64_t round = 0; round < kRounds; ++round) {
    kernels["matmul"](mine_a, mine_b, c);
    s.allreduce(c, c);
  }
  s.sync_all();
  int64_t wrong = 0;
  for (int w = 0; w < s.num_workers(); ++w) {
    const auto got = c.debug_get_from_remote(w).as<Tensor>();
    const float* at = got.values<float>().data();
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t column = 0; column < kColumns; ++column) {
        float sum = 0;
        for (int64_t i = 0; i < part * workers; ++i) sum += a_at(row, i) * b_at(i, column);
        wrong += *at++ != sum;  // whole numbers: exact in any order
      }
  }
  std::printf("%lld of %lld elements are wrong\n", static_cast<long long>(wrong),
              static_cast<long long>(workers * kRows * kColumns));
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) return multiply(ThreadedSession(std::stoi(argv[2])), argv[1]);
  return run(argc, argv, [](int, char** args) { return multiply(Session::create(), args[1]); });
}
