// Sessions whose workers have GPUs: what only the stand-ins can show.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "gpu/sessions.h"
#include "gpu/standin/control.h"

namespace {

using namespace tutti;
using namespace tutti_test;
using namespace std::chrono_literals;
namespace standin = standin_control;

using StandinGpus = Gpus;

/// Each element as `change` makes it of the old one: a kernel, on the worker's stream.
void launch(const Tensor& t, float (*change)(float)) {
  standin::launch(stream(), [where = stream(), data = t.data(), n = t.element_count(), change] {
    auto* at = reinterpret_cast<float*>(standin::reach(where, data));
    if (!at) return 700;
    for (int64_t i = 0; i < n; ++i) at[i] = change(at[i]);
    return 0;
  });
}

const bool registered_for_standins = [] {
  register_global_func("gpu.double", [](const Tensor& t) { launch(t, [](float x) { return 2 * x; }); });
  register_global_func("gpu.many", [](const Tensor& t, int64_t times) {  // temporaries of work that is under way
    for (int64_t i = 0; i < times; ++i) {
      const Tensor copy = Tensor::like(t), sum = Tensor::like(t);
      copy.copy_from(t);
      launch(copy, [](float x) { return x + 1; });
      worker::world().allreduce(copy, sum, ReduceOp::kMax);
      launch(sum, [](float x) { return x - 1; });
      t.copy_from(sum);
    }
  });
  register_global_func("gpu.pci", [] {  // as the stand-in for CUDA's driver writes it, in upper case
    char id[32] = {};
    standin::find<int(char*, int, int)>("TUTTI_CUDA_LIBRARY", "cuDeviceGetPCIBusId")(id, sizeof id, worker::device().id);
    return std::string(id);
  });
  register_global_func("gpu.last_error", [](const Tensor& x) {
    launch(x, [](float value) { return value; });
    standin::launch(stream(), [] {
      std::this_thread::sleep_for(20ms);
      return 0;
    });
    Tensor::empty(x.shape(), x.dtype()).copy_from(x);  // waits
    return int64_t{standin::find<int()>("TUTTI_HIP_LIBRARY", "hipGetLastError")()};
  });
  register_global_func("gpu.allreduce", [](const Tensor& t) { worker::world().allreduce(t, t); });
  register_global_func("gpu.pair", [](const Tensor& from, const Tensor& to) {
    const int last = worker::count() - 1;
    if (worker::id() == 0) worker::world().send(from, last);
    if (worker::id() == last) worker::world().recv(to, 0);
  });
  register_global_func("gpu.swallowed", [](const Tensor& t) {
    try {
      worker::world().allreduce(t, t);
      Tensor::empty(t.shape(), t.dtype()).copy_from(t);  // waits
    } catch (const std::exception&) {
    }
  });
  register_global_func("gpu.elsewhere", [] {
    worker::world().allreduce(Tensor::empty({4}, kFloat32, {worker::device().type, 7}), Tensor());
  });
  register_global_func("gpu.lose", [](int64_t on_worker, int64_t status) {  // the next collective of that worker
    if (worker::id() == on_worker)
      standin::find<void(int)>(ccl() == "nccl" ? "TUTTI_NCCL_LIBRARY" : "TUTTI_RCCL_LIBRARY",
                               "standin_nccl_async")(static_cast<int>(status));
  });
  register_global_func("gpu.start_takes", [](int64_t milliseconds) {
    standin::find<void(int)>(ccl() == "nccl" ? "TUTTI_NCCL_LIBRARY" : "TUTTI_RCCL_LIBRARY",
                             "standin_nccl_start_takes")(static_cast<int>(milliseconds));
  });
  register_global_func("gpu.lose_in_a_part", [](const Tensor& t, int64_t on_worker, int64_t status) {
    const Comm part = worker::world().split(worker::id() % 2);
    part.allreduce(t, t, ReduceOp::kMax);  // the first one connects, and hears of a loss while it does
    get_global_func("gpu.lose")(std::vector<Value>{on_worker, status});
    part.allreduce(t, t, ReduceOp::kMax);
  });
  register_global_func("gpu.crash", [](int64_t on_worker) {
    if (worker::id() == on_worker) standin::launch(stream(), [] { return 700; });
  });
  return true;
}();

TEST_F(StandinGpus, every_worker_has_the_one_that_is_planned_for_it) {
  if (!std::getenv("TUTTI_TOPOLOGY")) return;  // of four GPUs, which each rank counts from another one on
  Session s = make();
  const DRef pci = s.call(s.get_global_func("gpu.pci"), {});
  std::set<std::string> all;
  for (int w = 0; w < workers(); ++w) {
    const std::string planned = s.places()[static_cast<size_t>(w)].gpu_pci;
    EXPECT_EQ(pci.debug_get_from_remote(w), Value(planned)) << "worker " << w;
    all.insert(planned);
  }
  EXPECT_EQ(all.size(), static_cast<size_t>(workers()));
}

TEST_F(StandinGpus, kernels_and_collectives_go_in_one_order) {
  Session s = make();
  const auto n = static_cast<float>(s.num_workers());
  const DRef x = s.call(s.get_global_func("gpu.ones"), {5000}), sum = s.empty({5000}, kFloat32);
  for (int i = 0; i < 10; ++i) {
    s.allreduce(x, sum);
    s.call(s.get_global_func("gpu.double"), {sum});
    s.allreduce(sum, sum, "max");
  }
  expect_all(s, sum, 2 * n, 5000);
  s.call(s.get_global_func("gpu.many"), {sum, 20});
  expect_all(s, sum, 2 * n, 5000);
}

TEST_F(StandinGpus, what_the_ccl_can_t_do_is_refused_and_the_session_goes_on) {
  Session s = make();
  const DRef shorts = s.empty({4}, kInt16);
  s.allreduce(shorts, shorts);
  std::string why = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(why.find("ccl '" + ccl() + "' has no sum of int16"), std::string::npos) << why;
  s.call(s.get_global_func("gpu.elsewhere"), {});
  why = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(why.find("7); init_ccl gave this worker"), std::string::npos) << why;
  s.init_ccl(ccl(), {99, 98, 97, 96, 95, 94, 93, 92});
  why = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(why.find("this process may use 8 of them"), std::string::npos) << why;
  s.init_ccl(ccl());
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(x, x);
  expect_all(s, x, static_cast<float>(workers()), 10);
}

TEST_F(StandinGpus, two_workers_on_one_are_refused) {
  if (workers() < 2 || may_share()) return;
  Session s = make_session();
  s.init_ccl(ccl(), std::vector<int64_t>(static_cast<size_t>(workers()), 3));
  const std::string why = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(why.find("both have the GPU 0000:04:00.0 on "), std::string::npos) << why;
  EXPECT_NE(why.find("TUTTI_ALLOW_SHARED_DEVICE=1"), std::string::npos) << why;
  s.init_ccl(ccl());
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(x, x);
  expect_all(s, x, static_cast<float>(workers()), 10);
}

TEST_F(StandinGpus, what_the_pool_keeps_is_there_for_the_ccl) {
  Session s = make();
  (void)s.empty({int64_t{254} << 20}, kFloat32);  // 1016 of the 1024 MiB that there are: freed at once, and kept
  s.sync_all();
  s.init_ccl(ccl());
  EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(); }), "");
}

TEST_F(StandinGpus, look_at_errors_finds_none) {  // HIP remembers that an event was not ready
  if (ccl() != "rccl") return;
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.sync_all();
  const DRef last = s.call(s.get_global_func("gpu.last_error"), {x});
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(last.debug_get_from_remote(w), Value(int64_t{0}));
}

TEST_F(StandinGpus, an_error_that_one_member_sees_ends_the_work_of_all) {
  if (workers() < 2) return;
  Session s = make();
  const DRef before = s.call(s.get_global_func("gpu.ones"), {10});
  s.sync_all();
  for (const int who : {0, workers() - 1}) {
    const DRef x = s.call(s.get_global_func("gpu.ones"), {10}), sum = s.empty({10}, kFloat32);
    s.call(s.get_global_func("gpu.lose"), {who, 6});
    s.allreduce(x, sum);
    const std::string why = message_of<RemoteError>([&] { s.sync_all(20s); });
    EXPECT_NE(why.find("failed with remote process exited"), std::string::npos) << why;
    EXPECT_NE(why.find("worker " + std::to_string(who)), std::string::npos) << why;
    EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "");
    for (int w = 0; w < workers(); ++w)  // it is lost everywhere, and names the same one
      EXPECT_NE(message_of<RemoteError>([&] { sum.debug_get_from_remote(w); }).find("failed with remote process exited"),
                std::string::npos)
          << "worker " << w;
    const DRef sent = s.empty({10}, kFloat32);
    s.call(s.get_global_func("gpu.pair"), {before, sent});  // the first one with new communicators
    EXPECT_EQ(to_vector(sent.debug_get_from_remote(workers() - 1)), std::vector<float>(10, 1));
    s.allreduce(before, sum);
    expect_all(s, sum, static_cast<float>(workers()), 10);
  }
}

TEST_F(StandinGpus, who_hears_of_a_loss_late_goes_on_as_well) {
  if (workers() < 2) return;
  Session s = make();
  const int who = workers() - 1;
  const DRef before = s.call(s.get_global_func("gpu.ones"), {10}), sum = s.empty({10}, kFloat32);
  s.sync_all();
  s.call(s.get_global_func("gpu.lose"), {who, 6});
  s.allreduce(before, sum);
  EXPECT_NE(message_of<RemoteError>([&] { sum.debug_get_from_remote(who, 20s); }), "");  // the others have not waited yet
  s.call(s.get_global_func("gpu.host_sum"), {});                                         // and this acknowledges the failure
  (void)message_of<RemoteError>([&] { s.sync_all(20s); });
  for (int w = 0; w < workers(); ++w)
    EXPECT_NE(message_of<RemoteError>([&] { sum.debug_get_from_remote(w); }).find("failed with remote process exited"),
              std::string::npos)
        << "worker " << w;
  s.allreduce(before, sum);
  EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "");
  expect_all(s, sum, static_cast<float>(workers()), 10);
}

TEST_F(StandinGpus, a_loss_that_a_function_keeps_to_itself_is_told_by_the_next_collective) {
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.call(s.get_global_func("gpu.lose"), {0, 6});
  s.call(s.get_global_func("gpu.swallowed"), {x});
  EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "");
  const DRef y = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(y, y);
  const std::string why = message_of<RemoteError>([&] { s.sync_all(20s); });
  EXPECT_NE(why.find("were aborted"), std::string::npos) << why;
  const DRef z = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(z, z);
  expect_all(s, z, static_cast<float>(workers()), 10);
}

TEST_F(StandinGpus, groups_go_on_after_a_loss_in_one_of_them) {
  if (workers() % 2 != 0) return;
  Session s = make(2);
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10}), sum = s.empty({10}, kFloat32);
  s.sync_all();
  for (int i = 0; i < 2; ++i) {
    s.call(s.get_global_func("gpu.lose"), {workers() - 1, 6});
    s.allreduce(x, sum, "sum", true);
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }).find("failed with remote process exited"), std::string::npos);
    s.allreduce(x, sum, "sum", true);
    expect_all(s, sum, static_cast<float>(workers() / 2), 10);
  }
}

/// NCCL starts each collective in a thread of its own: a member that looks after it does not wait for the others.
TEST_F(StandinGpus, a_slow_start_is_no_wait) {
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(x, x, "max");  // the first one connects the members
  s.call(s.get_global_func("gpu.start_takes"), {spans_nodes() ? 400 : 100});
  s.sync_all();
  for (const int who : {0, workers() - 1}) {
    s.call(s.get_global_func("gpu.crossed"), {x, who, 10, 0});
    EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "") << who;
  }
  s.call(s.get_global_func("gpu.start_takes"), {0});
  const auto all = static_cast<float>(workers());
  expect_all(s, x, all * all, 10);
}

TEST_F(StandinGpus, an_error_of_a_part_is_not_lost_with_it) {
  if (workers() < 3) return;  // a part of one waits for nobody
  Session s = make();
  for (const bool is_connected : {false, true}) {
    const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
    s.sync_all();
    if (is_connected) s.call(s.get_global_func("gpu.lose_in_a_part"), {x, 0, 6});
    else s.call(s.get_global_func("gpu.lose"), {0, 6}), s.call(s.get_global_func("gpu.parts"), {x});
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }).find("failed with remote process exited"), std::string::npos);
    const DRef y = s.call(s.get_global_func("gpu.ones"), {10});
    s.allreduce(y, y);
    expect_all(s, y, static_cast<float>(workers()), 10);
  }
}

TEST_F(StandinGpus, what_was_under_way_is_lost_wherever_the_loss_is_told) {
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10}), sum = s.empty({10}, kFloat32);
  const DRef large = s.empty({2 << 20}, kFloat32);  // 8 MiB: the copy waits for its first pieces
  s.sync_all();
  s.call(s.get_global_func("gpu.lose"), {0, 6});
  s.allreduce(x, sum);
  s.copy_to_worker_0(floats(std::vector<float>(2 << 20, 3)), large);
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }), "");
  EXPECT_NE(message_of<RemoteError>([&] { sum.debug_get_from_remote(0); }), "");
}

TEST_F(StandinGpus, calls_that_fail_leave_a_session_that_can_be_used_or_has_ended) {
  if (kind() != "thread" || ccl() != "nccl") return;  // of this process
  for (const char* call : {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError"}) {
    Session s = make_session();
    standin::fail(call, 1, 3);
    s.init_ccl(ccl());
    const std::string why = message_of<RemoteError>([&] { s.sync_all(20s); });
    EXPECT_NE(why.find("can't begin a communicator"), std::string::npos) << call << ": " << why;
    EXPECT_NE(why.find("internal error"), std::string::npos) << call << ": " << why;
    standin::fail("", 0, 0);
    s.init_ccl(ccl());
    const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
    s.allreduce(x, x);
    expect_all(s, x, static_cast<float>(workers()), 10);
  }
  Session s = make();
  s.sync_all();
  standin::fail("ncclAllReduce", 1, 1);  // of one member only, when all have agreed
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(x, x);
  const std::string why = message_of<RemoteError>([&] { s.sync_all(20s); });
  EXPECT_NE(why.find("ncclAllReduce failed with unhandled cuda error: the stand-in says so"), std::string::npos) << why;
  standin::fail("", 0, 0);
  const DRef y = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(y, y);
  expect_all(s, y, static_cast<float>(workers()), 10);
}

// last: the device can't be used any more
TEST_F(StandinGpus, a_device_that_is_lost_ends_the_session) {
  if (kind() == "mpi") return;  // and the job
  Session s = make();
  s.call(s.get_global_func("gpu.crash"), {workers() - 1});
  const std::string why = message_of<TransportError>([&] { s.sync_all(20s); });
  EXPECT_NE(why.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << why;
  EXPECT_NE(why.find("worker " + std::to_string(workers() - 1)), std::string::npos) << why;
  EXPECT_NE(why.find("start the job again"), std::string::npos) << why;
}

}  // namespace
