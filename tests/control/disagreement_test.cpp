// Members of a collective that don't agree: operands that differ, members that leave, and what may be done after it.
#include <gtest/gtest.h>

#include "support/failures.h"
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

const bool registered = [] {
  // worker `odd` has other operands than the rest; all catch that, and go on with their group at once
  register_global_func("disagree.caught_then_group", [](int64_t odd) {
    Tensor one = Tensor::full<float>({4}, 1), wide = Tensor::full<double>({4}, 1), out = Tensor::like(one);
    try {
      worker::world().allreduce(worker::id() == odd ? wide : one, out);
      if (worker::count() > 1) throw std::logic_error("agreed on different operands");
    } catch (const UsageError&) {
    } catch (const RemoteError&) {
    }
    worker::group().barrier();
    worker::group().allreduce(one, out);
    if (out.values<float>()[0] != static_cast<float>(worker::group_size())) throw std::logic_error("wrong sum");
  });
  register_global_func("disagree.split", [](int64_t n) {
    std::vector<Comm> kept;
    for (int64_t i = 0; i < n; ++i) kept.push_back(worker::world().split(0));
    for (const Comm& comm : kept) comm.barrier();
  });
  register_global_func("disagree.retry", [](int64_t n) {
    const Tensor src = Tensor::full<float>({worker::id() == 0 ? 4 : 5}, 1), dst = Tensor::like(src);
    for (int64_t i = 0; i < n; ++i) try {
        worker::world().allreduce(src, dst);
      } catch (const UsageError& error) {
        if (std::string(error.what()).find("have failed") != std::string::npos) throw;
      } catch (const RemoteError&) {
      }
  });
  register_global_func("disagree.caught", [](int thrower) -> int {
    Tensor one = Tensor::full<float>({4}, 1), out = Tensor::like(one);
    if (worker::id() == thrower) {
      try {
        worker::world().allreduce(one, Tensor::full<float>({3}, 0));  // refused here: counts differ
      } catch (const UsageError&) {
      }
    } else {
      try {
        worker::world().allreduce(one, out);
      } catch (const Error&) {
      }
    }
    worker::world().allreduce(one, out);  // everyone again: must not pair with the first
    return static_cast<int>(out.values<float>()[0]);
  });
  register_global_func("disagree.mismatch", [](const std::string& what) {
    const bool odd = worker::id() % 2 == 1;
    Tensor a = Tensor::full<float>({odd && what == "count" ? 8 : 4}, 1);
    Tensor b = odd && what == "dtype" ? Tensor::full<int32_t>({4}, 1) : a;
    if (what == "kind" && odd) return worker::world().allreduce(a, a);
    if (what == "kind") return worker::world().broadcast(a, a);
    if (what == "op") return worker::world().allreduce(a, a, odd ? ReduceOp::kMin : ReduceOp::kMax);
    if (what == "root") return worker::world().broadcast(a, a, odd ? 1 : 0);
    worker::world().allreduce(b, b);
  });
  register_global_func("disagree.leave", [](int leaver) {
    Tensor a = Tensor::full<float>({4}, 1);
    if (worker::id() != leaver) worker::world().allreduce(a, a);
  });
  register_global_func("disagree.uneven", [](const Shape& claimed) {
    Tensor part = Tensor::full<float>({2}, 1), whole = Tensor::full<float>({2 * worker::count()}, 0);
    worker::world().gather(part, whole, 0,
                           worker::id() == 0 ? std::vector<int64_t>(claimed.begin(), claimed.end()) : std::vector<int64_t>{});
  });
  register_global_func("disagree.other_part", [](const std::string& op, int odd, int64_t count) {
    const Comm world = worker::world();
    const Tensor part = Tensor::full<float>({worker::id() == odd ? count + 1 : count}, 1),
                 whole = Tensor::full<float>({count * world.size()}, 0);
    if (op == "scatter") world.scatter(whole, part);
    else world.gather(part, whole);
  });
  return true;
}();

TEST(Disagreement, mismatched_operands_name_who_had_what) {
  if (workers() < 2) return;  // one worker agrees with itself
  for (const char* what : {"count", "dtype", "kind", "op", "root"}) {
    Session s = make_session();
    s.get_global_func("disagree.mismatch")(what);
    const std::string text = error_of_sync_all(s).what();
    EXPECT_NE(text.find("operands differ"), std::string::npos) << what << ": " << text;
    EXPECT_NE(text.find("worker 0"), std::string::npos) << what << ": " << text;
    EXPECT_NE(text.find("worker 1"), std::string::npos) << what << ": " << text;
    expect_usable(s);
  }
}

TEST(Disagreement, a_gather_whose_counts_differ_from_the_root_s_list) {
  if (workers() < 2) return;
  Session s = make_session();
  Shape claimed(static_cast<size_t>(workers()), 2);
  claimed[0] = 1;
  claimed[1] = 3;
  s.get_global_func("disagree.uneven")(claimed);
  const std::string text = error_of_sync_all(s).what();
  EXPECT_NE(text.find("the root lists"), std::string::npos) << text;
  expect_usable(s);
}

TEST(Disagreement, a_part_that_differs_from_the_others) {
  if (workers() < 2) return;
  Session s = make_session();
  for (const char* op : {"scatter", "gather"})
    for (int64_t count : {2, 5000, 100'000}) {
      const int odd = workers() - 1;
      s.get_global_func("disagree.other_part")(op, odd, count);
      const std::string text = error_of_sync_all(s).what(), has = std::to_string(count + 1), listed = std::to_string(count);
      EXPECT_NE(text.find(std::string(op) + " does not match: worker " + std::to_string(odd) + " has " + has +
                          " elements, the root lists " + listed),
                std::string::npos)
          << text;
      expect_usable(s);
    }
}

TEST(Disagreement, a_member_that_leaves_without_joining) {
  if (workers() < 2) return;
  for (int leaver : {0, workers() - 1}) {
    Session s = make_session();
    s.get_global_func("disagree.leave")(leaver);
    const std::string text = error_of_sync_all(s).what();
    EXPECT_NE(text.find("worker " + std::to_string(leaver) + " left the command without joining"), std::string::npos) << text;
    expect_usable(s);
  }
}

TEST(Disagreement, caught_failures_do_not_pair_different_collectives) {
  for (int thrower : {0, workers() - 1}) {
    Session s = make_session();
    DRef r = s.get_global_func("disagree.caught")(thrower);
    for (int w = 0; w < workers(); ++w) EXPECT_EQ(r.debug_get_from_remote(w), Value(workers()));
    expect_usable(s);
  }
}

TEST(Disagreement, leaving_a_collective_across_nodes_for_one_on_the_node) {
  for (int groups : group_counts()) {
    Session s = make_session(groups);
    for (int round = 0; round < 20; ++round) {
      s.get_global_func("disagree.caught_then_group")(round % workers());
      s.sync_all();
    }
    expect_usable(s);
  }
}

TEST(Disagreement, very_many_communicators_in_one_command) {
  Session s = make_session();
  s.get_global_func("disagree.split")(200);
  s.sync_all();
  expect_usable(s);
}

TEST(Disagreement, very_many_caught_failures_in_one_command) {
  if (workers() < 2) return;  // a collective alone can't disagree
  Session s = make_session();
  s.get_global_func("disagree.retry")(300);
  const std::string message = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(message.find("have failed in this command"), std::string::npos) << message;
  expect_usable(s);
}

}  // namespace
