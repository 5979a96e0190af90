// Sessions whose workers have GPUs, on stand-ins for the driver and NCCL: TUTTI_TEST_CCL=nccl or rccl.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <regex>
#include <set>
#include <thread>

#include "gpu/standin/control.h"
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;
using namespace std::chrono_literals;
namespace standin = standin_control;

/// As if each node had GPUs of its own.
bool may_share() { return std::getenv("TUTTI_ALLOW_SHARED_DEVICE") != nullptr; }

bool spans_nodes() {
  const char* each = std::getenv("TUTTI_RANKS_PER_NODE");
  return workers() > (each ? std::atoi(each) : std::getenv("TUTTI_SHARED_MEMORY") ? 1 : 1000);
}

std::string ccl() { return std::getenv("TUTTI_TEST_CCL"); }

/// Each element as `change` makes it of the old one: a kernel, on the worker's stream.
void launch(const Tensor& t, float (*change)(float)) {
  standin::launch(stream(), [where = stream(), data = t.data(), n = t.element_count(), change] {
    auto* at = reinterpret_cast<float*>(standin::reach(where, data));
    if (!at) return 700;
    for (int64_t i = 0; i < n; ++i) at[i] = change(at[i]);
    return 0;
  });
}

/// Of all workers, beside the world.
Comm backwards() {
  std::vector<int> workers(static_cast<size_t>(worker::count()));
  std::iota(workers.rbegin(), workers.rend(), 0);
  return worker::comm(workers);
}

const bool registered = [] {
  register_global_func("gpu.ones", [](int64_t n) {
    const Tensor t = Tensor::empty({n}, kFloat32, worker::device());
    launch(t, [](float) { return 1.0f; });
    return t;
  });
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
  register_global_func("gpu.parts", [](const Tensor& t) {
    for (int i = 0; i < 3; ++i) worker::world().split(worker::id() % 2).allreduce(t, t, ReduceOp::kMax);
  });
  register_global_func("gpu.host_sum", [] {
    const Tensor one = Tensor::full<int64_t>({1}, 1);
    worker::world().allreduce(one, one);
    return one.item<int64_t>();
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
  // allreduce, but for one worker, which does something else
  register_global_func("gpu.but_one", [](const Tensor& t, int64_t who, std::string how) {
    const Comm world = worker::world();
    if (worker::id() != who) return world.allreduce(t, t);
    if (how == "throws") throw std::runtime_error("on purpose");
    if (how == "other op") world.allreduce(t, t, ReduceOp::kMax);
    if (how == "other collective") world.broadcast(t, t, 0);
    if (how == "catches") {
      try {
        world.allreduce(Tensor::empty({4}, kFloat32, {worker::device().type, 7}), Tensor());
      } catch (const UsageError&) {
      }
      world.allreduce(t, t);
    }
  });
  register_global_func("gpu.circle", [](const Tensor& t, int64_t who) {
    if (worker::id() == who) worker::world().barrier();
    worker::world().allreduce(t, t);
    Tensor::empty(t.shape(), t.dtype()).copy_from(t);  // waits
    if (worker::id() != who) worker::world().barrier();
  });
  register_global_func("gpu.circle_of_two", [](int64_t who) {
    const Tensor t = Tensor::empty({4}, kFloat32, worker::device());
    if (worker::id() == who) backwards().barrier();
    worker::world().allreduce(t, t);
    Tensor::empty(t.shape(), t.dtype()).copy_from(t);
    if (worker::id() != who) backwards().barrier();
  });
  register_global_func("gpu.crossed", [](const Tensor& t, int64_t who, int64_t before, int64_t after) {
    if (worker::id() == who) backwards().barrier();
    else std::this_thread::sleep_for(std::chrono::milliseconds(before));
    worker::world().allreduce(t, t);
    if (worker::id() == who) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(after));
    backwards().barrier();
  });
  register_global_func("gpu.two_but_one", [](const Tensor& t, int64_t who) {
    if (worker::id() == who) throw std::runtime_error("on purpose");
    worker::world().allreduce(t, t);
    backwards().allreduce(t, t);
  });
  register_global_func("gpu.late", [](const Tensor& t, int64_t who, int64_t milliseconds) {
    if (worker::id() == who) std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    worker::world().allreduce(t, t);
  });
  register_global_func("gpu.throws", [] { throw std::runtime_error("before all"); });
  register_global_func("gpu.first_two", [](const Tensor& t, int64_t who) {
    if (worker::id() == who) throw std::runtime_error("on purpose");
    worker::world().allreduce(t, t);
    if (worker::id() < 2) worker::comm({0, 1}).allreduce(t, t);
  });
  register_global_func("gpu.turns", [](const Tensor& t, int64_t n) {
    for (int64_t i = 0; i < n; ++i) worker::group().allreduce(t, t, ReduceOp::kMax);
  });
  register_global_func("gpu.series", [](const Tensor& t, int64_t n, int64_t who, int64_t differs_at) {
    for (int64_t i = 0; i < n; ++i)
      worker::world().allreduce(t, t, worker::id() == who && i == differs_at ? ReduceOp::kMin : ReduceOp::kMax);
  });
  register_global_func("gpu.elsewhere", [] {
    worker::world().allreduce(Tensor::empty({4}, kFloat32, {worker::device().type, 7}), Tensor());
  });
  register_global_func("gpu.lose", [](int64_t on_worker, int64_t status) {  // the next collective of that worker
    if (worker::id() == on_worker)
      standin::find<void(int)>(ccl() == "nccl" ? "TUTTI_NCCL_LIBRARY" : "TUTTI_RCCL_LIBRARY",
                               "standin_nccl_async")(static_cast<int>(status));
  });
  register_global_func("gpu.crash", [](int64_t on_worker) {
    if (worker::id() == on_worker) standin::launch(stream(), [] { return 700; });
  });
  return true;
}();

class Gpus : public testing::Test {
 protected:
  static Session make(int groups = 1) {
    Session s = make_session(groups);
    s.init_ccl(ccl());
    return s;
  }
  static void expect_all(const Session& s, const DRef& array, float value, int64_t n) {
    for (int w = 0; w < s.num_workers(); ++w)
      EXPECT_EQ(to_vector(array.debug_get_from_remote(w)), std::vector<float>(static_cast<size_t>(n), value)) << "worker " << w;
  }
};

TEST_F(Gpus, every_worker_has_one) {
  if (may_share() || std::getenv("CUDA_VISIBLE_DEVICES")) return;
  Session s = make();
  const DRef device = s.call(s.get_global_func("runtime.disco.device"), {});
  for (int w = 0; w < s.num_workers(); ++w)
    EXPECT_EQ(device.debug_get_from_remote(w), Value(Device{ccl() == "nccl" ? dl::kCUDA : dl::kROCM, w}));
}

TEST_F(Gpus, every_worker_has_the_one_that_is_planned_for_it) {
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

TEST_F(Gpus, kernels_and_collectives_go_in_one_order) {
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

TEST_F(Gpus, arrays_go_there_and_back) {
  Session s = make();
  const int64_t n = 300'000;  // several pieces
  Tensor host = floats(iota(n));
  const DRef there = s.broadcast(host);
  for (float& x : host.values<float>()) x = -1;  // it may change
  for (int w = 0; w < s.num_workers(); ++w) EXPECT_EQ(to_vector(there.debug_get_from_remote(w)), iota(n)) << w;
  Tensor back = Tensor::empty({n});
  s.copy_from_worker_0(back, there);
  s.sync_worker(0);
  EXPECT_EQ(to_vector(back), iota(n));
  s.copy_to_worker_0(floats(iota(n, 5)), there);
  EXPECT_EQ(to_vector(there.debug_get_from_remote(0)), iota(n, 5));
  const int last = s.num_workers() - 1;
  there.debug_copy_from(last, floats(iota(n, 1)));
  EXPECT_EQ(to_vector(there.debug_get_from_remote(last)), iota(n, 1));

  const DRef part = s.scatter(floats(iota(3 * s.num_workers()), {s.num_workers(), 3}));
  for (int w = 0; w < s.num_workers(); ++w)
    EXPECT_EQ(to_vector(part.debug_get_from_remote(w)), iota(3, static_cast<float>(3 * w)));
  const DRef all = s.empty({3 * s.num_workers()}, kFloat32, {}, true);
  s.gather_to_worker0(part, all);
  EXPECT_EQ(to_vector(all.debug_get_from_remote(0)), iota(3 * s.num_workers()));
}

TEST_F(Gpus, groups_and_parts_have_communicators_of_their_own) {
  if (workers() % 2 != 0) return;
  Session s = make(2);
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10}), sum = s.empty({10}, kFloat32);
  s.allreduce(x, sum, "sum", true);
  s.call(s.get_global_func("gpu.parts"), {sum});
  expect_all(s, sum, static_cast<float>(workers() / 2), 10);
  const DRef rows = s.scatter(floats(iota(workers()), {workers() / 2, 2}));
  for (int w = 0; w < workers(); ++w)
    EXPECT_EQ(to_vector(rows.debug_get_from_remote(w)), iota(2, static_cast<float>(2 * (w % (workers() / 2)))));
}

TEST_F(Gpus, host_tensors_go_beside_them) {
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(x, x);
  EXPECT_EQ(s.call(s.get_global_func("gpu.host_sum"), {}).debug_get_from_remote(0), Value(int64_t{workers()}));
  expect_all(s, x, static_cast<float>(workers()), 10);
}

TEST_F(Gpus, what_the_ccl_can_t_do_is_refused_and_the_session_goes_on) {
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

TEST_F(Gpus, two_workers_on_one_are_refused) {
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

TEST_F(Gpus, what_the_pool_keeps_is_there_for_the_ccl) {
  Session s = make();
  (void)s.empty({int64_t{254} << 20}, kFloat32);  // 1016 of the 1024 MiB that there are: freed at once, and kept
  s.sync_all();
  s.init_ccl(ccl());
  EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(); }), "");
}

TEST_F(Gpus, look_at_errors_finds_none) {  // HIP remembers that an event was not ready
  if (ccl() != "rccl") return;
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.sync_all();
  const DRef last = s.call(s.get_global_func("gpu.last_error"), {x});
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(last.debug_get_from_remote(w), Value(int64_t{0}));
}

TEST_F(Gpus, an_error_that_one_member_sees_ends_the_work_of_all) {
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

TEST_F(Gpus, who_hears_of_a_loss_late_goes_on_as_well) {
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

TEST_F(Gpus, a_loss_that_a_function_keeps_to_itself_is_told_by_the_next_collective) {
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

TEST_F(Gpus, groups_go_on_after_a_loss_in_one_of_them) {
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

/// The members do not wait for each other: the others have started when one does not come.
TEST_F(Gpus, a_member_that_does_something_else_is_found) {
  if (workers() < 2) return;
  Session s = make();
  const std::pair<const char*, const char*> cases[] = {{"throws", "on purpose"},
                                                       {"leaves", "left the command without joining"},
                                                       {"other op", "operands differ"},
                                                       {"other collective", "operands differ"},
                                                       {"catches", "left|after the failure"}};  // the others' error, or its own
  for (const auto& [how, expected] : cases)
    for (const int who : {0, workers() - 1}) {
      const DRef x = s.call(s.get_global_func("gpu.ones"), {10}), y = s.call(s.get_global_func("gpu.ones"), {10});
      s.call(s.get_global_func("gpu.but_one"), {x, who, how});
      s.allreduce(y, y);  // after it
      const std::string why = message_of<RemoteError>([&] { s.sync_all(20s); });
      EXPECT_TRUE(std::regex_search(why, std::regex(expected))) << how << ' ' << who << ": " << why;
      EXPECT_NE(why.find("worker " + std::to_string(who)), std::string::npos) << how << ' ' << who << ": " << why;
      EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "") << how;
      for (int w = 0; w < workers(); ++w) {
        EXPECT_NE(message_of<RemoteError>([&] { y.debug_get_from_remote(w); }), "") << how << ", worker " << w;
        if (w != who) {
          EXPECT_NE(message_of<RemoteError>([&] { x.debug_get_from_remote(w); }), "") << how << ", worker " << w;
        }
      }
      const DRef z = s.call(s.get_global_func("gpu.ones"), {10});
      s.allreduce(z, z);
      expect_all(s, z, static_cast<float>(workers()), 10);
    }
}

/// Else these would wait for each other: on several nodes, too.
TEST_F(Gpus, a_collective_starts_without_the_other_members) {
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  // the first time NCCL has yet to connect the members; that and the work since is no wait for them
  for (const int who : {0, workers() - 1, 0}) {
    s.call(s.get_global_func("gpu.crossed"), {x, who, 100, spans_nodes() ? 1300 : 0});
    EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "") << who;
  }
  const auto all = static_cast<float>(workers());
  expect_all(s, x, all * all * all, 10);
}

/// Where the members are on several nodes a report says which one is waited for.
TEST_F(Gpus, a_hang_report_names_the_member_that_does_not_come) {
  if (!spans_nodes()) return;
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(x, x);
  s.sync_all();
  s.call(s.get_global_func("gpu.late"), {x, workers() - 1, 3000});
  const std::string why = message_of<TimeoutError>([&] { s.sync_all(1s); });
  EXPECT_NE(why.find("waits in allreduce #0 (sum float32 x 10) of command"), std::string::npos) << why;
  EXPECT_NE(why.find("s for worker " + std::to_string(workers() - 1)), std::string::npos) << why;
  EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "");
}

TEST_F(Gpus, others_need_not_have_looked_when_a_failure_is_raised) {
  if (workers() < 2) return;
  Session s = make();
  for (const int who : {0, workers() - 1}) {
    const DRef x = s.call(s.get_global_func("gpu.ones"), {10}), y = s.call(s.get_global_func("gpu.ones"), {10});
    s.sync_all();
    s.call(s.get_global_func("gpu.but_one"), {x, who, "throws"});
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_worker(who, 20s); }).find("on purpose"), std::string::npos);
    s.allreduce(y, y);  // must not meet what the others have started
    expect_all(s, y, static_cast<float>(workers()), 10);
    for (int w = 0; w < workers(); ++w) {
      if (w == who) continue;
      EXPECT_NE(message_of<RemoteError>([&] { x.debug_get_from_remote(w); }).find("on purpose"), std::string::npos) << w;
    }
  }
}

TEST_F(Gpus, a_circle_with_a_collective_of_the_host_is_found) {
  if (workers() < 2) return;
  Session s = make();
  for (const int who : {0, workers() - 1}) {
    const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
    s.call(s.get_global_func("gpu.circle"), {x, who});
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }).find("operands differ"), std::string::npos);
    s.call(s.get_global_func("gpu.circle_of_two"), {who});
    const std::string why = message_of<RemoteError>([&] { s.sync_all(20s); });
    EXPECT_NE(why.find("deadlock in command"), std::string::npos) << why;
    const DRef y = s.call(s.get_global_func("gpu.ones"), {10});
    s.allreduce(y, y);
    expect_all(s, y, static_cast<float>(workers()), 10);
  }
}

TEST_F(Gpus, communicators_that_wait_for_each_other_are_aborted_together) {
  if (workers() < 2) return;
  Session s = make();
  for (int i = 0; i < 3; ++i) {
    const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
    s.call(s.get_global_func("gpu.two_but_one"), {x, -1});  // both communicators are there
    s.sync_all();
    s.call(s.get_global_func("gpu.two_but_one"), {x, workers() - 1});
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }).find("on purpose"), std::string::npos);
  }
}

TEST_F(Gpus, a_failure_is_heard_while_a_communicator_is_made_anew) {
  if (workers() < 3) return;
  Session s = make();
  const auto f = s.get_global_func("gpu.first_two");
  for (int i = 0; i < 3; ++i) {
    const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
    s.call(f, {x, -1});
    s.sync_all();
    s.call(s.get_global_func("gpu.throws"), {});
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }).find("before all"), std::string::npos);
    s.allreduce(x, x, "max", false);  // the world's is new; that of workers 0 and 1 is not, and x never gets to its end there
    s.call(f, {x, workers() - 1});
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }).find("on purpose"), std::string::npos);
  }
}

TEST_F(Gpus, communicators_by_turns_are_held_apart) {
  if (workers() % 2 != 0) return;
  Session s = make(2);
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10}), y = s.call(s.get_global_func("gpu.ones"), {10});
  for (int i = 0; i < 2; ++i) {
    s.allreduce(x, x, "max", false);
    s.call(s.get_global_func("gpu.turns"), {y, 150});
    EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "");
  }
}

TEST_F(Gpus, a_difference_among_many_is_found) {
  if (workers() < 2) return;
  Session s = make();
  for (const auto& [n, differs_at] :
       std::initializer_list<std::pair<int, int>>{{50, -1}, {50, 20}, {300, -1}, {300, 7}, {300, 299}}) {
    const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
    s.call(s.get_global_func("gpu.series"), {x, n, workers() - 1, differs_at});
    const std::string why = message_of<RemoteError>([&] { s.sync_all(20s); });
    if (differs_at < 0) EXPECT_EQ(why, "");
    else if (n - differs_at > 60) EXPECT_NE(why, "");  // the words for it are overwritten
    else EXPECT_NE(why.find("operands differ"), std::string::npos) << n << ' ' << differs_at << ": " << why;
  }
}

TEST_F(Gpus, an_error_of_a_part_is_not_lost_with_it) {
  if (workers() < 3) return;  // a part of one waits for nobody
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.sync_all();
  s.call(s.get_global_func("gpu.lose"), {0, 6});
  s.call(s.get_global_func("gpu.parts"), {x});
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }).find("failed with remote process exited"), std::string::npos);
  const DRef y = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(y, y);
  expect_all(s, y, static_cast<float>(workers()), 10);
}

TEST_F(Gpus, what_was_under_way_is_lost_wherever_the_loss_is_told) {
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

TEST_F(Gpus, calls_that_fail_leave_a_session_that_can_be_used_or_has_ended) {
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
TEST_F(Gpus, a_device_that_is_lost_ends_the_session) {
  if (kind() == "mpi") return;  // and the job
  Session s = make();
  s.call(s.get_global_func("gpu.crash"), {workers() - 1});
  const std::string why = message_of<TransportError>([&] { s.sync_all(20s); });
  EXPECT_NE(why.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << why;
  EXPECT_NE(why.find("worker " + std::to_string(workers() - 1)), std::string::npos) << why;
  EXPECT_NE(why.find("start the job again"), std::string::npos) << why;
}

}  // namespace
