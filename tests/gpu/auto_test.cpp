// init_ccl("auto") takes GPUs where all workers have their own: TUTTI_TEST_EXPECT says what is to be found here.
#include <gtest/gtest.h>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

TEST(Auto, takes_what_is_here) {
  const std::string expected = std::getenv("TUTTI_TEST_EXPECT");
  Session s = make_session();
  const DRef ccl = s.get_global_func("runtime.disco.ccl"), device = s.get_global_func("runtime.disco.device");
  EXPECT_EQ(s.call(ccl, {}).debug_get_from_remote(0), Value("auto"));  // nothing was said yet
  for (int round = 0; round < 2; ++round) {
    s.init_ccl("auto");
    for (int w = 0; w < workers(); ++w) {
      EXPECT_EQ(s.call(ccl, {}).debug_get_from_remote(w), Value(expected)) << w;
      const auto of = s.call(device, {}).debug_get_from_remote(w).as<Device>();
      EXPECT_EQ(of.type, expected == "nccl" ? dl::kCUDA : expected == "rccl" ? dl::kROCM : dl::kCPU) << w;
    }
    for (const std::optional<Device> where : {std::optional<Device>(), std::optional<Device>(cpu())}) {
      const DRef x = s.empty({3}, kFloat32, where), sum = s.empty({3}, kFloat32, where);
      s.copy_to_worker_0(floats({1, 2, 3}), x);
      s.broadcast_from_worker0(x, x, false);
      s.allreduce(x, sum, "sum", false);
      const auto n = static_cast<float>(workers());
      EXPECT_EQ(to_vector(sum.debug_get_from_remote(workers() - 1)), (std::vector<float>{n, 2 * n, 3 * n}));
    }
    s.init_ccl("mpi");
    EXPECT_EQ(s.call(ccl, {}).debug_get_from_remote(workers() - 1), Value(kind() == "mpi" ? "mpi" : "local"));
  }
  s.shutdown();
}

// one worker, which has a driver, says what is missing
TEST(Auto, warns_once) {
  const char* words = std::getenv("TUTTI_TEST_WARNING");
  Session s = make_session();
  testing::internal::CaptureStderr();
  s.init_ccl("auto");
  s.sync_all();
  const std::string said = testing::internal::GetCapturedStderr(), begin = "init_ccl: 'auto' takes the host's memory";
  const size_t at = said.find(begin);
  EXPECT_EQ(at != std::string::npos, words != nullptr) << said;
  EXPECT_NE(said.find(words ? words : "", at == std::string::npos ? 0 : at), std::string::npos) << said;
  EXPECT_EQ(said.find(begin, at == std::string::npos ? at : at + 1), std::string::npos) << said;
  s.shutdown();
}

// where all have GPUs; else numbers are ignored, as by "mpi"
TEST(Auto, takes_the_numbers_that_it_is_given) {
  Session s = make_session();
  s.init_ccl("auto", {1});
  const std::string why = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(why.find("1 device ids, expected one for each worker of a node: worker 1 is its node's 2."), std::string::npos)
      << why;
  s.init_ccl("auto", {2, 1, 0});
  const auto device = s.call(s.get_global_func("runtime.disco.device"), {});
  EXPECT_EQ(device.debug_get_from_remote(0), Value(Device{dl::kCUDA, 2}));
  s.shutdown();
}

}  // namespace
