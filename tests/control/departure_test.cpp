// A member that can't take part fails the collective on the others when it leaves (kSlow allows for a busy machine), on every
// kind of communicator; one that still computes does not.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;
using namespace std::chrono_literals;

constexpr auto kComputes = 150ms, kSlow = 10000ms;

/// What the others do, and the odd one not, or otherwise.
void join(const std::string& where, int odd, int64_t count) {
  const Tensor src = Tensor::full<float>({count}, 1), dst = Tensor::like(src);
  const int me = worker::id(), n = worker::count(), partner = (odd + 1) % n;
  if (where == "send" || where == "recv") {
    if (me != odd && me != partner) return;
    const bool sends = (where == "send") == (me == partner);
    if (sends) worker::world().send(src, me == odd ? partner : odd);
    else worker::world().recv(dst, me == odd ? partner : odd);
  } else if (where == "world") {
    worker::world().allreduce(src, dst);
  } else if (where == "group") {
    worker::group().allreduce(src, dst);
  } else {
    worker::world().split(0, n - me).allreduce(src, dst);
  }
}

const bool registered = [] {
  // {milliseconds from before the common start to this worker's failure, or -1 without one; its words}
  register_global_func("departure.of", [](const std::string& where, const std::string& how, int odd) -> Value {
    constexpr int64_t kCount = 1 << 18;  // a send of it waits for its receiver
    if (where == "split") worker::world().split(0, worker::count() - worker::id()).barrier();
    const auto start = std::chrono::steady_clock::now();
    worker::world().barrier();
    if (worker::id() == odd) {
      std::this_thread::sleep_for(kComputes);
      if (how == "throw") throw std::runtime_error("the odd one throws");
      if (how == "leave") return List{-1, ""};
    }
    try {
      join(where, odd, worker::id() == odd && how == "mismatch" ? kCount / 2 : kCount);
    } catch (const Error& error) {
      const auto took = std::chrono::steady_clock::now() - start;
      return List{std::chrono::duration_cast<std::chrono::milliseconds>(took).count(), error.what()};
    }
    return List{-1, ""};
  });
  return true;
}();

std::atomic<int> others_that_know{0};
std::atomic<bool> told_too_late{false};

/// Takes as long to put into words as the others to fail.
struct SlowlyTold : std::exception {
  const char* what() const noexcept override {
    for (const auto start = std::chrono::steady_clock::now(); others_that_know < workers() - 1; std::this_thread::sleep_for(1ms))
      if (std::chrono::steady_clock::now() - start > kSlow) return told_too_late = true, "nobody else knew of it";
    return "told slowly";
  }
};

const bool slow_registered = [] {
  register_global_func("departure.told_slowly", [](int odd) {
    if (worker::id() == odd) throw SlowlyTold();
    try {
      worker::world().barrier();
    } catch (const Error&) {
      ++others_that_know;
    }
  });
  return true;
}();

bool has_part(const std::string& where, int odd, int w, int groups) {
  if (where == "send" || where == "recv") return w == odd || w == (odd + 1) % workers();
  const int size = workers() / groups;
  return where != "group" || w / size == odd / size;
}

/// Every member but the odd one has failed, not before it left.
void fails_on_the_others(const std::string& where, const std::string& how, int odd, int groups) {
  SCOPED_TRACE(where + ", " + how + ", odd one " + std::to_string(odd) + ", " + std::to_string(groups) + " group(s)");
  Session s = make_session(groups);
  DRef told = s.get_global_func("departure.of")(where, how, odd);
  try {
    s.sync_all();
    EXPECT_NE(how, "throw") << "sync_all raised nothing";  // what everybody caught is no failure of the command
  } catch (const RemoteError& error) {
    EXPECT_NE(std::string(error.what()).find("worker " + std::to_string(odd)), std::string::npos) << error.what();
  }
  for (int w = 0; w < workers(); ++w) {
    if (w == odd) continue;
    const auto result = told.debug_get_from_remote(w).as<List>();
    const auto took = result[0].as<int64_t>();
    const auto words = result[1].as<std::string>();
    if (!has_part(where, odd, w, groups)) {
      EXPECT_EQ(took, -1) << "worker " << w << ": " << words;
      continue;
    }
    EXPECT_GE(took, kComputes.count()) << "worker " << w << " did not wait: " << words;
    EXPECT_LE(took, (kComputes + kSlow).count()) << "worker " << w << ": " << words;
    EXPECT_NE(words.find("worker " + std::to_string(odd)), std::string::npos) << words;
  }
  s.get_global_func("departure.of")("world", "none", -1);  // everyone together again
  s.sync_all();
}

class Departures : public testing::TestWithParam<std::string> {};

TEST_P(Departures, is_known_on_every_kind_of_communicator) {
  if (workers() < 2) return;  // nobody else is there
  for (const char* where : {"world", "group", "split", "send", "recv"})
    for (int odd : {0, workers() - 1}) fails_on_the_others(where, GetParam(), odd, 1);
  if (workers() % 2 == 0) fails_on_the_others("group", GetParam(), workers() - 1, 2);
}

/// To look up a traceback's names may take seconds.
TEST(Departure, is_known_before_its_error_is_in_words) {
  if (kind() != "thread" || workers() < 2) return;  // what the others know is in this process
  for (int odd : {0, workers() - 1}) {
    Session s = make_session();
    others_that_know = 0;
    s.get_global_func("departure.told_slowly")(odd);
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("told slowly"), std::string::npos);
    EXPECT_FALSE(told_too_late);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Departures, testing::Values("throw", "leave", "mismatch"),
                         [](const auto& info) { return info.param; });

}  // namespace
