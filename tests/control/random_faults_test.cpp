// A session that survives one random fault after another; each is told with the right workers and the right function.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

void sum(int64_t count) {
  const auto src = Tensor::full<float>({count}, 1), dst = Tensor::like(src);
  worker::world().allreduce(src, dst);
}

bool is_me(const Shape& who) {
  for (int64_t w : who)
    if (w == worker::id()) return true;
  return false;
}

const bool registered = [] {
  register_global_func("random.throw", [](const Shape& who, bool after) {
    if (after) sum(10);
    if (is_me(who)) throw std::runtime_error("random");
    if (!after) sum(10);
  });
  register_global_func("random.throw_int", [](const Shape& who) {
    if (is_me(who)) throw 42;  // NOLINT: on purpose
  });
  register_global_func("random.own_error", [](const Shape& who) {  // in an operation of ours
    if (is_me(who)) worker::world().send(Tensor::full<float>({1}, 1), worker::count());
  });
  register_global_func("random.mismatch", [](const Shape& who) { sum(is_me(who) ? 20 : 10); });
  register_global_func("random.skip", [](const Shape& who) {
    if (!is_me(who)) sum(10);
  });
  register_global_func("random.arguments", [](int64_t, const std::string&) {});
  return true;
}();

int count() {
  const char* text = std::getenv("TUTTI_TEST_FAULTS");
  return text ? std::atoi(text) : 100;
}

TEST(RandomFaults, each_is_told_with_the_right_worker_and_function) {
  Session s = make_session();
  std::mt19937 random(20261121);
  auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const char* names[] = {"random.throw",    "random.throw", "random.throw_int", "random.own_error",
                         "random.mismatch", "random.skip",  "random.arguments", "random.nothing"};
  for (int i = 0; i < count(); ++i) {
    const std::string name = names[upto(8)];
    const bool is_collective = name == "random.mismatch" || name == "random.skip",
               everyone = name == "random.arguments" || name == "random.nothing";
    if (is_collective && workers() == 1) continue;
    std::set<int> who;
    for (int w = 0; w < workers(); ++w)
      if (everyone || upto(3) == 0) who.insert(w);
    if (is_collective) who = {upto(workers())};
    if (who.empty()) who.insert(upto(workers()));
    const Shape shape(who.begin(), who.end());
    auto f = s.get_global_func(name);
    const DRef result = name == "random.throw" ? f(shape, upto(2) == 1) : f(shape);
    for (int k = upto(5); k > 0; --k) s.get_global_func("random.throw_int")(shape);  // skipped where the fault was
    try {
      if (upto(2)) s.sync_all();
      else result.debug_get_from_remote(*who.begin()), s.sync_all();
      ADD_FAILURE() << i << ": " << name << " was not told";
    } catch (const RemoteError& first) {
      std::vector<WorkerFailure> failures = first.failures();
      std::string text = first.what();
      for (bool more = true; more;) try {  // debug_get raises what has arrived
          s.sync_all();
          more = false;
        } catch (const RemoteError& later) {
          failures.insert(failures.end(), later.failures().begin(), later.failures().end());
          text += later.what();
        }
      std::set<int> told;
      for (const WorkerFailure& failure : failures) {
        if (failure.function == "random.throw_int" && name != failure.function)
          continue;  // of a worker that went on: by another member's fault
        told.insert(failure.worker);
        EXPECT_EQ(failure.function, everyone && name == "random.nothing" ? "get_global_func" : name) << i << text;
      }
      if (!is_collective) {
        EXPECT_EQ(told, who) << i << ": " << name << "\n" << text;
      } else {
        const std::string odd = "worker " + std::to_string(*who.begin());
        EXPECT_NE(text.find(name == "random.skip" ? odd + " left the command" : odd + ": allreduce sum of 20"), std::string::npos)
            << i << ": " << name << "\n"
            << text;
      }
    }
    if (i % 10 == 0) {
      DRef out = s.empty({4}, kFloat32);
      s.allreduce(s.broadcast(floats({1, 2, 3, 4})), out, "sum", false);
      EXPECT_EQ(to_vector(out.debug_get_from_remote(workers() - 1))[3], 4 * static_cast<float>(workers()));
    }
  }
}

}  // namespace
