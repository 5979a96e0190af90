// Sessions whose workers have GPUs, on the real libraries or the stand-ins: TUTTI_TEST_CCL=nccl or rccl.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <regex>
#include <set>
#include <thread>

#include "gpu/sessions.h"

namespace {

using namespace tutti;
using namespace tutti_test;
using namespace std::chrono_literals;

/// Of all workers, beside the world.
Comm backwards() {
  std::vector<int> workers(static_cast<size_t>(worker::count()));
  std::iota(workers.rbegin(), workers.rend(), 0);
  return worker::comm(workers);
}

const bool registered = [] {
  register_global_func("gpu.ones", [](int64_t n) {
    const Tensor t = Tensor::empty({n}, kFloat32, worker::device());
    t.copy_from(Tensor::full<float>({n}, 1));  // enqueued
    return t;
  });
  register_global_func("gpu.parts", [](const Tensor& t) {
    for (int i = 0; i < 3; ++i) worker::world().split(worker::id() % 2).allreduce(t, t, ReduceOp::kMax);
  });
  register_global_func("gpu.host_sum", [] {
    const Tensor one = Tensor::full<int64_t>({1}, 1);
    worker::world().allreduce(one, one);
    return one.item<int64_t>();
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
        world.allreduce(Tensor::empty({4}, kInt16, worker::device()), Tensor());
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
  register_global_func("gpu.late_and_throws", [](const Tensor& t, int64_t who, int64_t milliseconds) {
    if (worker::id() != who) return worker::world().allreduce(t, t);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    throw std::runtime_error("too late");
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
  return true;
}();

TEST_F(Gpus, every_worker_has_one) {
  if (may_share() || std::getenv("CUDA_VISIBLE_DEVICES")) return;
  Session s = make();
  const DRef device = s.call(s.get_global_func("runtime.disco.device"), {});
  const int32_t type = ccl() == "nccl" ? dl::kCUDA : dl::kROCM;
  std::set<int> taken;
  for (int w = 0; w < s.num_workers(); ++w) {
    const auto has = device.debug_get_from_remote(w).as<Device>();
    EXPECT_EQ(has.type, type);
    EXPECT_TRUE(taken.insert(has.id).second) << "worker " << w << " shares GPU " << has.id;
    if (kind() != "mpi" || s.places().at(static_cast<size_t>(w)).gpu_pci.empty()) {  // nothing is planned
      EXPECT_EQ(has.id, w);
    }
  }
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
  s.allreduce(x, x, "max");  // the first one connects the members
  s.sync_all();
  for (const int who : {0, workers() - 1, 0}) {
    s.call(s.get_global_func("gpu.crossed"), {x, who, 100, spans_nodes() ? 1300 : 0});
    EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "") << who;
  }
  const auto all = static_cast<float>(workers());
  expect_all(s, x, all * all * all, 10);
}

/// It does not end before all have come, as NCCL connects them then.
TEST_F(Gpus, the_first_collective_waits_for_all_members) {
  if (workers() < 2) return;
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.call(s.get_global_func("gpu.late"), {x, workers() - 1, 1500});
  EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(20s); }), "");
  expect_all(s, x, static_cast<float>(workers()), 10);
  s.call(s.get_global_func("gpu.throws"), {});
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }), "");  // the next one makes new communicators
  const DRef y = s.call(s.get_global_func("gpu.ones"), {10});
  s.call(s.get_global_func("gpu.crossed"), {y, 0, 0, 0});
  const std::string why = message_of<RemoteError>([&] { s.sync_all(20s); });
  EXPECT_NE(why.find("deadlock in command"), std::string::npos) << why;
  const DRef z = s.call(s.get_global_func("gpu.ones"), {10});
  s.call(s.get_global_func("gpu.late_and_throws"), {z, workers() - 1, 1500});
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(20s); }).find("too late"), std::string::npos);
  const DRef last = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(last, last);
  expect_all(s, last, static_cast<float>(workers()), 10);
}

/// Where the members are on several nodes a report says which one is waited for.
TEST_F(Gpus, a_hang_report_names_the_member_that_does_not_come) {
  if (!spans_nodes()) return;
  Session s = make();
  const DRef x = s.call(s.get_global_func("gpu.ones"), {10});
  s.allreduce(x, x);
  s.sync_all();
  s.call(s.get_global_func("gpu.late"), {x, workers() - 1, 3000});
  const std::string late = "s for worker " + std::to_string(workers() - 1);
  std::string why;
  // a loaded machine may start the others late, too
  for (int tries = 0; tries < 3 && why.find(late) == std::string::npos; ++tries)
    why = message_of<TimeoutError>([&] { s.sync_all(1s); });
  EXPECT_NE(why.find("waits in allreduce #0 (sum float32 x 10) of command"), std::string::npos) << why;
  EXPECT_NE(why.find(late), std::string::npos) << why;
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

TEST_F(Gpus, programs_replay_and_go_on_after_a_failure) {
  Session s = make();
  const int n = s.num_workers();
  const Tensor host = Tensor::full<float>({4}, 1), back = Tensor::full<float>({4}, 0);
  const DRef sum = s.empty({4}, kFloat32);
  const auto but_one = s.get_global_func("gpu.but_one");
  auto recording = s.record("of GPUs");
  const DRef who = recording.slot("who");
  const DRef everywhere = s.broadcast(host);
  s.allreduce(everywhere, sum);
  but_one(everywhere, who, "throws");
  s.copy_from_worker_0(back, sum);
  const Program program = recording.finish();
  for (int i = 1; i < 4; ++i) {
    host.values<float>()[0] = static_cast<float>(i);  // read by each replay
    program(-1);
    s.sync_all();
    EXPECT_EQ(back.values<float>()[0], static_cast<float>(i * n));
  }
  program.repeat(10, {-1});
  s.sync_all();
  program.repeat(3, {n - 1});
  const auto message = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(message.find("of program of GPUs (recorded at"), std::string::npos) << message;
  EXPECT_NE(message.find("iteration 1 of 3: on purpose"), std::string::npos) << message;
  program(-1);
  s.sync_all();
  EXPECT_EQ(to_vector(everywhere.debug_get_from_remote(n - 1))[1], static_cast<float>(n));
}

}  // namespace
