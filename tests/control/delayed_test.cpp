// Sessions whose workers have a device on which work is done late (tests/support/delayed_device.h): a synchronising call returns
// when the work is complete, what is read is what was written, and a failure that comes late is told and takes what it has
// touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "support/delayed_communicator.h"
#include "support/delayed_device.h"
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace tutti_test;
using namespace std::chrono_literals;

std::atomic<int> done{0};
std::atomic<bool> holds{false};

Tensor fresh(Shape shape) { return Tensor::empty(std::move(shape), kFloat32, worker::device()); }

const bool registered = [] {
  delayed::install();
  register_global_func("delayed.later", [](int64_t milliseconds) {
    delayed::enqueue(stream(), [=] {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      ++done;
    });
  });
  register_global_func("delayed.hold", [] {
    delayed::enqueue(stream(), [] {
      while (holds) std::this_thread::sleep_for(1ms);
    });
  });
  register_global_func("delayed.fail", [](int64_t on_worker) {
    if (worker::id() == on_worker)
      delayed::enqueue(stream(), [] { throw std::runtime_error("the device has fallen off the bus"); });
  });
  register_global_func("delayed.filled", [](int64_t n, double value) {  // a tensor that is there at once, and written later
    const Tensor t = fresh({n});
    delayed::enqueue(stream(), [at = reinterpret_cast<float*>(delayed::reach(t.data())), n, value] {
      for (int64_t i = 0; i < n; ++i) at[i] = static_cast<float>(value);
    });
    return t;
  });
  register_global_func("delayed.many", [](const Tensor& t, int64_t times) {  // temporaries of work that is under way
    for (int64_t i = 0; i < times; ++i) {
      const Tensor copy = Tensor::like(t), sum = Tensor::like(t);
      copy.copy_from(t);
      worker::world().allreduce(copy, sum, ReduceOp::kMax);
      t.copy_from(sum);
    }
  });
  register_global_func("delayed.sub", [](const Tensor& t) {  // a communicator that ends with the command
    const Comm sub = worker::world().split(worker::id() % 2);
    sub.allreduce(t, t);
  });
  // parts are dropped by each member when it likes; returns how many were freed while the function ran
  register_global_func("delayed.parts", [](const Tensor& t) {
    const size_t before = delayed::freed_by(worker::id()).size();
    std::vector<Comm> kept;
    for (int i = 0; i < 20; ++i) {
      kept.push_back(worker::world().split(i % 4 == 3 ? worker::id() : worker::id() % 2, -worker::id()));
      kept.back().allreduce(t, t, ReduceOp::kMax);
      if (i == 15) kept.clear();
      else if ((worker::id() + i) % 3 == 0) kept.erase(kept.begin());
      else if ((worker::id() + i) % 5 == 0) kept.pop_back();
    }
    return static_cast<int64_t>(delayed::freed_by(worker::id()).size() - before);
  });
  // a part of a part, which nobody splits again, and one that a member keeps while it drops what came before
  register_global_func("delayed.nested_parts", [](const Tensor& t) {
    const size_t before = delayed::freed_by(worker::id()).size();
    std::vector<Comm> kept;
    for (int i = 0; i < 12; ++i) {
      kept.push_back(worker::world().split(worker::id() % 2).split(0));
      kept.back().allreduce(t, t, ReduceOp::kMax);
      if (worker::id() != 0 || kept.size() > 4) kept.erase(kept.begin());
    }
    return static_cast<int64_t>(delayed::freed_by(worker::id()).size() - before);
  });
  register_global_func("delayed.host", [] {
    const Tensor one = Tensor::full<int64_t>({1}, 1);
    worker::world().allreduce(one, one);
    return one.item<int64_t>();
  });
  register_global_func("delayed.sums", [](const Tensor& t, const Tensor& sum) { worker::world().allreduce(t, sum); });
  register_global_func("delayed.mixed", [](const Tensor& t) { worker::world().allreduce(Tensor::full<float>({4}, 1), t); });
  register_global_func("delayed.other_device", [] {
    worker::world().allreduce(Tensor::empty({4}, kFloat32, {delayed::kType, 99}), fresh({4}));
  });
  register_global_func("delayed.raise", [] { throw std::runtime_error("at once"); });
  return true;
}();

/// Every number of workers, with several seeds of the delays.
class Delayed : public testing::Test {
 protected:
  void each(const std::function<void(Session&)>& check, int groups = 1) {
    const char* text = std::getenv("TUTTI_TEST_SEEDS");
    for (int seed = 0, seeds = text ? std::atoi(text) : 2; seed < seeds; ++seed)
      for (const int n : {1, 2, 3, 4, 8}) {
        if (n % groups != 0) continue;
        SCOPED_TRACE("workers " + std::to_string(n) + " seed " + std::to_string(seed));
        delayed::set_seed(static_cast<uint64_t>(seed) << 32);
        Session s = ThreadedSession(n, groups);
        s.init_ccl("delayed");
        check(s);
      }
  }
  static void expect_all(const Session& s, const DRef& array, float value, int64_t n) {
    for (int w = 0; w < s.num_workers(); ++w)
      EXPECT_EQ(to_vector(array.debug_get_from_remote(w)), std::vector<float>(static_cast<size_t>(n), value)) << "worker " << w;
  }
};

TEST_F(Delayed, workers_have_devices_of_their_own) {
  Session s = ThreadedSession(3);
  s.init_ccl("delayed", {5, 3, 4});
  const auto device = s.call(s.get_global_func("runtime.disco.device"), {});
  EXPECT_EQ(device.debug_get_from_remote(1), Value(Device{delayed::kType, 3}));
  s.init_ccl("delayed", {1, 2});
  const auto why = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(why.find("2 device ids, expected one for each worker of a node: worker 2 is its node's 3."), std::string::npos)
      << why;
  s.init_ccl("mpi");
  EXPECT_EQ(s.call(s.get_global_func("runtime.disco.device"), {}).debug_get_from_remote(1), Value(cpu()));
}

TEST_F(Delayed, a_sync_returns_when_the_work_is_complete) {
  each([](Session& s) {
    const auto later = s.get_global_func("delayed.later");
    for (int times = 1; times <= 3; ++times) {
      done = 0;
      s.call(later, {10});
      s.call(later, {0});
      s.sync_all();
      EXPECT_EQ(done, 2 * s.num_workers());
    }
    done = 0;
    s.call(later, {5});
    for (int w = 0; w < s.num_workers(); ++w) s.sync_worker(w);
    EXPECT_EQ(done, s.num_workers());
    done = 0;
    s.call(later, {5});
    s.shutdown();
    EXPECT_EQ(done, s.num_workers());
  });
}

TEST_F(Delayed, what_is_read_is_what_was_written) {
  each([](Session& s) {
    const int64_t n = 5000;
    const auto filled = s.get_global_func("delayed.filled");
    const auto workers = static_cast<float>(s.num_workers());
    const DRef x = s.call(filled, {n, 2.0}), sum = s.empty({n}, kFloat32);
    s.allreduce(x, sum);
    expect_all(s, sum, 2 * workers, n);
    s.allreduce(sum, sum, "max");
    s.call(s.get_global_func("delayed.many"), {sum, 20});
    expect_all(s, sum, 2 * workers, n);

    const Tensor host = floats(iota(n));
    const DRef there = s.broadcast(host);
    Tensor back = Tensor::empty({n});
    s.copy_from_worker_0(back, there);
    s.sync_worker(0);
    EXPECT_EQ(to_vector(back), iota(n));
    s.copy_to_worker_0(floats(std::vector<float>(n, 7)), there);
    EXPECT_EQ(to_vector(there.debug_get_from_remote(0)), std::vector<float>(n, 7));
    const int last = s.num_workers() - 1;
    there.debug_copy_from(last, floats(iota(n, 1)));
    EXPECT_EQ(to_vector(there.debug_get_from_remote(last)), iota(n, 1));

    const DRef part = s.scatter(floats(iota(3 * s.num_workers()), {s.num_workers(), 3}));
    for (int w = 0; w < s.num_workers(); ++w)
      EXPECT_EQ(to_vector(part.debug_get_from_remote(w)), iota(3, static_cast<float>(3 * w)));
    const DRef all = s.empty({3 * s.num_workers()}, kFloat32, {}, true);
    s.gather_to_worker0(part, all);
    EXPECT_EQ(to_vector(all.debug_get_from_remote(0)), iota(3 * s.num_workers()));
  });
}

TEST_F(Delayed, arrays_that_were_lent_may_change_at_once) {
  each([](Session& s) {
    const int64_t n = 200'000;  // more than is copied
    Tensor host = floats(std::vector<float>(n, 3));
    const DRef there = s.broadcast(host);
    for (float& x : host.values<float>()) x = -1;
    expect_all(s, there, 3, n);
  });
}

TEST_F(Delayed, groups_and_parts_have_communicators_of_their_own) {
  each(
      [](Session& s) {
        const DRef x = s.call(s.get_global_func("delayed.filled"), {10, 1.0}), sum = s.empty({10}, kFloat32);
        s.allreduce(x, sum, "sum", true);
        const auto in_group = static_cast<float>(s.num_workers() / 2);
        expect_all(s, sum, in_group, 10);
        for (int times = 0; times < 3; ++times) s.call(s.get_global_func("delayed.sub"), {sum});
        const auto size = [&](int w) { return static_cast<float>((s.num_workers() + (w % 2 == 0 ? 1 : 0)) / 2); };
        for (int w = 0; w < s.num_workers(); ++w)
          EXPECT_EQ(to_vector(sum.debug_get_from_remote(w))[0], in_group * size(w) * size(w) * size(w));
        const DRef rows = s.scatter(floats(iota(s.num_workers()), {s.num_workers() / 2, 2}));
        for (int w = 0; w < s.num_workers(); ++w)
          EXPECT_EQ(to_vector(rows.debug_get_from_remote(w)), iota(2, static_cast<float>(2 * (w % (s.num_workers() / 2)))));
      },
      2);
}

TEST_F(Delayed, host_memory_goes_by_the_hosts_back_end) {
  each([](Session& s) {
    EXPECT_EQ(s.call(s.get_global_func("delayed.host"), {}).debug_get_from_remote(0), Value(int64_t{s.num_workers()}));
    s.barrier();
    s.sync_all();
  });
}

TEST_F(Delayed, wrong_devices_are_refused) {
  each([](Session& s) {
    const DRef t = s.call(s.get_global_func("delayed.filled"), {4, 1.0});
    s.call(s.get_global_func("delayed.mixed"), {t});
    auto why = message_of<RemoteError>([&] { s.sync_all(); });
    EXPECT_NE(why.find("src lies on cpu(0), dst on device(12, 0)"), std::string::npos) << why;
    s.call(s.get_global_func("delayed.other_device"), {});
    why = message_of<RemoteError>([&] { s.sync_all(); });
    EXPECT_NE(why.find("src lies on device(12, 99); init_ccl gave this worker device(12, 0)"), std::string::npos) << why;
    expect_all(s, s.call(s.get_global_func("delayed.filled"), {4, 1.0}), 1, 4);
  });
}

TEST_F(Delayed, a_late_failure_takes_what_was_written_since_the_last_sync) {
  each([](Session& s) {
    const auto filled = s.get_global_func("delayed.filled");
    const DRef before = s.call(filled, {8, 1.0}), sum = s.empty({8}, kFloat32);
    s.sync_all();
    const DRef x = s.call(filled, {8, 2.0});
    delayed::fail_next_collective("a link went down");
    s.allreduce(x, sum);
    const DRef after = s.call(filled, {8, 4.0});
    const auto why = message_of<RemoteError>([&] { s.sync_all(); });
    EXPECT_NE(why.find("a link went down"), std::string::npos) << why;
    EXPECT_EQ(message_of<RemoteError>([&] { s.sync_all(); }), "");  // told once
    for (const DRef& lost : {x, sum, after}) {
      const auto again = message_of<RemoteError>([&] { lost.debug_get_from_remote(0); });
      EXPECT_NE(again.find("a link went down"), std::string::npos) << again;
    }
    expect_all(s, before, 1, 8);  // complete before
    s.allreduce(before, sum);     // overwritten, it is there again
    expect_all(s, sum, static_cast<float>(s.num_workers()), 8);
  });
}

TEST_F(Delayed, a_late_failure_takes_what_a_function_s_collective_was_to_write) {
  each([](Session& s) {
    const DRef x = s.call(s.get_global_func("delayed.filled"), {8, 2.0}), sum = s.empty({8}, kFloat32);
    s.sync_all();
    delayed::fail_next_collective("a link went down");
    s.call(s.get_global_func("delayed.sums"), {x, sum});
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }), "");
    EXPECT_NE(message_of<RemoteError>([&] { sum.debug_get_from_remote(0); }).find("a link went down"), std::string::npos);
    s.allreduce(x, sum);
    expect_all(s, sum, 2 * static_cast<float>(s.num_workers()), 8);
  });
}

TEST_F(Delayed, a_late_failure_of_one_worker_is_told_by_every_sync) {
  each([](Session& s) {
    const auto fail = s.get_global_func("delayed.fail");
    const int last = s.num_workers() - 1;
    const std::function<void()> syncs[] = {[&] { s.sync_all(); }, [&] { s.sync_worker(last); },
                                           [&] {
                                             s.call(s.get_global_func("delayed.filled"), {2, 1.0}).debug_get_from_remote(last);
                                           }};
    for (const auto& sync : syncs) {
      s.call(fail, {last});
      const auto why = message_of<RemoteError>(sync);
      EXPECT_NE(why.find("fallen off the bus"), std::string::npos) << why;
      EXPECT_NE(why.find("worker " + std::to_string(last)), std::string::npos) << why;
      s.sync_all();
    }
    s.call(fail, {last});
    EXPECT_NE(message_of<RemoteError>([&] { s.shutdown(); }).find("fallen off the bus"), std::string::npos);
  });
}

TEST_F(Delayed, a_failure_at_once_and_a_late_one_are_both_told) {
  each([](Session& s) {
    s.call(s.get_global_func("delayed.fail"), {0});
    s.call(s.get_global_func("delayed.raise"), {});
    const auto why = message_of<RemoteError>([&] { s.sync_all(); });
    EXPECT_NE(why.find("at once"), std::string::npos) << why;
    EXPECT_NE(why.find("fallen off the bus"), std::string::npos) << why;
    s.sync_all();
  });
}

TEST_F(Delayed, a_collective_that_can_t_complete_ends_by_its_communicator_s_error) {
  each([](Session& s) {
    delayed::lose_next_collective("rank 1 does not answer");
    const DRef x = s.call(s.get_global_func("delayed.filled"), {8, 2.0}), sum = s.empty({8}, kFloat32);
    s.allreduce(x, sum);
    const auto why = message_of<RemoteError>([&] { s.sync_all(10s); });
    EXPECT_NE(why.find("rank 1 does not answer"), std::string::npos) << why;
    EXPECT_NE(message_of<RemoteError>([&] { sum.debug_get_from_remote(0); }), "");
    s.init_ccl("delayed");  // new communicators
    s.allreduce(s.call(s.get_global_func("delayed.filled"), {8, 2.0}), sum);
    expect_all(s, sum, 2 * static_cast<float>(s.num_workers()), 8);
  });
}

TEST_F(Delayed, a_wait_for_work_that_is_under_way_has_limits) {
  each([](Session& s) {
    holds = true;
    std::thread watchdog([] {
      for (int i = 0; holds && i < 3000; ++i) std::this_thread::sleep_for(1ms);
      EXPECT_FALSE(holds.exchange(false)) << "the limits were not kept";
    });
    s.call(s.get_global_func("delayed.hold"), {});
    std::this_thread::sleep_for(5ms);  // worker 0's thread is idle again: the controller may run what comes next
    const std::string why = message_of<TimeoutError>([&] { s.sync_all(30ms); });
    EXPECT_NE(why.find("waits for the work of its device in command"), std::string::npos) << why;
    EXPECT_NE(message_of<TimeoutError>([&] { s.sync_worker(0, 30ms); }), "");
    holds = false;
    watchdog.join();
    s.sync_all();
  });
}

TEST_F(Delayed, parts_are_freed_in_one_order_by_all_their_members) {
  each([](Session& s) {
    const int workers = s.num_workers();
    std::vector<size_t> before;
    for (int w = 0; w < workers; ++w) before.push_back(delayed::freed_by(w).size());
    const DRef t = s.call(s.get_global_func("delayed.filled"), {4, 1.0});
    const DRef early = s.call(s.get_global_func("delayed.parts"), {t});
    for (int w = 0; w < workers; ++w) EXPECT_GE(early.debug_get_from_remote(w).as<int64_t>(), 12) << "worker " << w;
    const DRef nested = s.call(s.get_global_func("delayed.nested_parts"), {t});
    for (int w = 0; w < workers; ++w) EXPECT_GE(nested.debug_get_from_remote(w).as<int64_t>(), 6) << "worker " << w;
    s.sync_all();
    std::vector<std::vector<const void*>> orders;
    for (int w = 0; w < workers; ++w) {
      const auto all = delayed::freed_by(w);
      orders.emplace_back(all.begin() + static_cast<ptrdiff_t>(before[static_cast<size_t>(w)]), all.end());
      EXPECT_EQ(orders.back().size(), 32u) << "worker " << w;
    }
    for (int a = 0; a < workers; ++a)
      for (int b = 0; b < a; ++b) {  // of what both were in
        const auto& x = orders[static_cast<size_t>(a)];
        const auto& y = orders[static_cast<size_t>(b)];
        std::vector<const void*> of_a, of_b;
        for (const void* one : x)
          if (std::ranges::count(y, one)) of_a.push_back(one);
        for (const void* one : y)
          if (std::ranges::count(x, one)) of_b.push_back(one);
        EXPECT_EQ(of_a, of_b) << "workers " << a << " and " << b;
      }
  });
}

TEST_F(Delayed, nothing_is_left_of_a_session) {
  const size_t before = delayed::blocks();
  each([](Session& s) {
    const DRef x = s.call(s.get_global_func("delayed.filled"), {1000, 2.0});
    s.call(s.get_global_func("delayed.many"), {x, 5});
    s.sync_all();
  });
  EXPECT_EQ(delayed::blocks(), before);
}

}  // namespace
