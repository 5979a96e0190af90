// Hours of work (TUTTI_TEST_SECONDS of it) in which TUTTI_FAULT strikes again and again: every failure is raised, what was not
// hit is right, and nothing grows.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "support/steady.h"

namespace {

using namespace tutti;
using namespace tutti_test;

const bool registered = register_global_func("soak.work",
                                             [](int64_t n) {
                                               const auto src = Tensor::full<float>({n}, 1), dst = Tensor::like(src);
                                               worker::world().allreduce(src, dst);
                                               worker::group().barrier();
                                               return static_cast<int64_t>(dst.values<float>()[n - 1]);
                                             }) &&
                        register_global_func("soak.throws", [] { throw std::runtime_error("as the first"); });

TEST(SoakFaults, each_is_raised_and_nothing_grows) {
  ASSERT_TRUE(std::getenv("TUTTI_FAULT")) << "such as throw every=97; throw worker=1 every=89 in=collective";
  const char* text = std::getenv("TUTTI_TEST_SECONDS");
  const std::chrono::duration<double> part(std::max(1.0, text ? std::atof(text) : 3.0) / 24);
  int64_t raised = 0, right = 0;
  constexpr int kRounds = 5;  // on the busiest machine: a round is over 20 commands, so that one raises in each part
  auto work_for_a_part = [&] {
    Session s = make_session();
    auto work = s.get_global_func("soak.work");
    const auto end = std::chrono::steady_clock::now() + part;
    for (int round = 0; round < kRounds || std::chrono::steady_clock::now() < end; ++round) try {
        std::vector<DRef> results;
        for (int i = 1; i <= 20; ++i) results.push_back(work(i * 100));
        DRef out = s.empty({50}, kFloat32);
        s.allreduce(s.broadcast(Tensor::full<float>({50}, 2)), out, "sum", false);
        s.sync_all();
        for (int w = 0; w < s.num_workers(); ++w) {
          ASSERT_EQ(results[static_cast<size_t>(w)].debug_get_from_remote(w), Value(s.num_workers()));
          ASSERT_EQ(to_vector(out.debug_get_from_remote(w))[49], 2 * static_cast<float>(s.num_workers()));
        }
        ++right;
      } catch (const RemoteError& error) {
        ASSERT_NE(std::string(error.what()).find("a fault, asked for at command"), std::string::npos) << error.what();
        ++raised;
      }
    for (bool more = true; more;) try {
        s.shutdown();
        more = false;
      } catch (const RemoteError&) {
        ++raised;
      }
  };
  {  // a process's first traceback opens the files that hold its names
    Session s = make_session();
    s.get_global_func("soak.throws")();
    EXPECT_THROW(s.sync_all(), RemoteError);
  }
  expect_steady(16, 8, work_for_a_part, [] {
    for (;;) try {
        Session s = make_session();
        return usage_of(s);
      } catch (const RemoteError&) {  // it strikes here too
      }
  });
  EXPECT_GT(raised, 0);
  EXPECT_GT(right, 0);
  std::printf("%ld rounds went well, %ld raised\n", static_cast<long>(right), static_cast<long>(raised));
}

}  // namespace
