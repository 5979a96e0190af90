// What happens when somebody does not come: hang reports, time-outs, deadlocks inside a command.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;
using namespace std::chrono_literals;

Tensor one() { return Tensor::full<float>({10}, 1); }

const bool registered = [] {
  register_global_func("hang.computes", [](int on, int ms) {
    if (worker::id() == on) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  });
  register_global_func("hang.echo", [](const Value& v) { return v; });
  register_global_func("hang.late_value", [](int on, int ms, int value) {
    if (worker::id() == on) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return value;
  });
  register_global_func("hang.slow_object", [](int ms) {
    return std::shared_ptr<int>(new int(ms), [](const int* length) {
      std::this_thread::sleep_for(std::chrono::milliseconds(*length));
      delete length;
    });
  });
  register_global_func("hang.late", [](int on, int ms) {
    if (worker::id() == on) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    worker::world().allreduce(one(), one());
  });
  register_global_func("hang.inverted", [] {
    const Comm all = worker::world(), other = all.split(0);
    if (worker::id() % 2) other.barrier(), all.allreduce(one(), one());
    else all.allreduce(one(), one()), other.barrier();
  });
  register_global_func("hang.both_send", [] {
    if (worker::id() < 2) worker::world().send(one(), 1 - worker::id());
  });
  register_global_func("hang.ring_of_sends", [] { worker::world().send(one(), (worker::id() + 1) % worker::count()); });
  // long waits that are none: worker 0 computes while the others wait for each other and for it
  register_global_func("hang.slow_chain", [] {
    const Comm all = worker::world(), odd_even = all.split(worker::id() % 2);
    if (worker::id() == 0) std::this_thread::sleep_for(900ms);
    odd_even.barrier();
    all.barrier();
    if (worker::id() == worker::count() - 1) std::this_thread::sleep_for(900ms);
    if (worker::id() % 2) odd_even.barrier(), all.barrier();
    else odd_even.barrier(), all.barrier();
  });
  return true;
}();

std::string time_out_of(Session& s, std::chrono::milliseconds limit) {
  return message_of<TimeoutError>([&] { s.sync_all(limit); });
}

/// What it prints, and how many seconds it takes, one tenth for rounding included.
std::pair<std::string, double> said_by_sync_all(Session& s) {
  testing::internal::CaptureStderr();
  const auto start = std::chrono::steady_clock::now();
  s.sync_all();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return {testing::internal::GetCapturedStderr(), took.count() + 0.1};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The seconds that follow these words, the first or the last time they come; -1: they don't.
double seconds_after(const std::string& text, const std::string& words, bool last = false) {
  const size_t at = last ? text.rfind(words) : text.find(words);
  return at == text.npos ? -1 : std::atof(text.c_str() + at + words.size());
}

TEST(Hang, a_report_tells_who_computes_what) {
  Session s = make_session();
  const int last = workers() - 1;
  s.get_global_func("hang.computes")(last, 1200);
  const std::string report = time_out_of(s, 200ms);
  EXPECT_TRUE(has(report, "sync_all at " __FILE__ ":")) << report;
  EXPECT_TRUE(has(report, "hang report of the " + kind() + " session with " + std::to_string(workers()) + " workers")) << report;
  EXPECT_TRUE(has(report, "worker " + std::to_string(last) + " (")) << report;
  const double since = seconds_after(report, "computes hang.computes in command 2 since ");
  EXPECT_TRUE(since >= 0 && since <= 1.3) << report;  // it began after the call, and takes 1.2 s
  const std::string later = time_out_of(s, 200ms);
  EXPECT_GE(seconds_after(later, "computes hang.computes in command 2 since "), since + 0.1)
      << report << later;  // of 0.2 s, rounded
  if (workers() > 1) {
    EXPECT_TRUE(has(report, "idle, has done all; 3 of 3 commands done")) << report;
  }
  s.sync_all();  // resumable
}

TEST(Hang, a_report_tells_who_waits_for_whom) {
  if (workers() < 2) GTEST_SKIP() << "needs 2 workers";
  Session s = make_session();
  s.get_global_func("hang.late")(1, 1500);
  const std::string report = time_out_of(s, 250ms);
  const double since = seconds_after(report, "waits in allreduce #0 (sum float32 x 10) of command 2 since ");
  EXPECT_TRUE(since >= 0 && since <= 1.6) << report;  // the late one comes after 1.5 s
  EXPECT_TRUE(has(report, " s for worker 1; ")) << report;
  EXPECT_TRUE(has(report, "computes hang.late in command 2")) << report;
  EXPECT_FALSE(has(report, "does not answer")) << report;
  EXPECT_THROW(s.sync_worker(1, 50ms), TimeoutError);
  s.sync_all();
}

TEST(Hang, waits_beyond_the_limit_are_reported_and_go_on) {
  setenv("TUTTI_TIMEOUT", "1", 1);
  Session s = make_session();
  unsetenv("TUTTI_TIMEOUT");
  s.get_global_func("hang.computes")(0, 2000);
  const auto [text, took] = said_by_sync_all(s);
  const double waited = seconds_after(text, "has waited ");
  EXPECT_TRUE(waited >= 1.0 && waited <= took) << text;  // at the limit, while the function runs
  EXPECT_TRUE(has(text, "computes hang.computes in command 2 since ")) << text;
}

TEST(Hang, a_session_may_have_its_own_limit_and_reports_each_time_it_passes) {
  Session s = make_session({.timeout = 400ms});
  s.get_global_func("hang.computes")(workers() - 1, 1100);
  const auto [text, took] = said_by_sync_all(s);
  EXPECT_NE(text.find("has waited "), text.rfind("has waited ")) << text;
  EXPECT_GE(seconds_after(text, "has waited "), 0.4) << text;
  EXPECT_GE(seconds_after(text, "has waited ", true), 0.8) << text;
  EXPECT_LE(seconds_after(text, "has waited ", true), took) << text;
}

TEST(Hang, every_wait_takes_a_limit_and_can_be_resumed) {
  Session s = make_session();
  const int last = workers() - 1;
  DRef x = s.get_global_func("hang.late_value")(last, 1000, 7);
  EXPECT_TRUE(has(message_of<TimeoutError>([&] { (void)x.debug_get_from_remote(last, 50ms); }), "debug_get_from_remote("));
  EXPECT_EQ(x.debug_get_from_remote(last), Value(7));
  s.get_global_func("hang.computes")(last, 1000);
  EXPECT_TRUE(has(message_of<TimeoutError>([&] { x.debug_copy_from(last, 8, 50ms); }), "sync_worker("));
  EXPECT_EQ(x.debug_get_from_remote(last), Value(8));  // it was under way
  s.get_global_func("hang.computes")(last, 1000);
  EXPECT_THROW(s.sync_worker(last, 50ms), TimeoutError);
  EXPECT_THROW(s.shutdown(50ms), TimeoutError);
  EXPECT_EQ(x.debug_get_from_remote(last), Value(8));  // nothing has happened yet
  s.shutdown();
  s.shutdown();
}

TEST(Hang, a_shutdown_that_waits_for_an_object_can_be_resumed) {
  Session s = make_session();
  DRef x = s.get_global_func("hang.slow_object")(1500);
  s.sync_all();
  EXPECT_THROW(s.shutdown(700ms), TimeoutError);
  EXPECT_TRUE(has(message_of<UsageError>([&] { s.sync_all(); }), "half shut down"));
  x = {};
  s.shutdown();
  EXPECT_TRUE(has(message_of<UsageError>([&] { s.sync_all(); }), "was shut down"));
}

TEST(Hang, a_command_that_finds_no_room_keeps_its_limit) {
  Session s = make_session();
  auto echo = s.get_global_func("hang.echo");
  s.get_global_func("hang.computes")(workers() - 1, 3000);
  const auto start = std::chrono::steady_clock::now();
  std::vector<DRef> kept;
  for (int i = 0; i < 900; ++i) kept.push_back(echo(std::string(1000, 'x')));  // all but fills the ring
  kept.push_back(echo(std::string(50000, 'x')));
  const std::string text = time_out_of(s, 200ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2800ms);
  if (kind() != "mpi") {
    EXPECT_TRUE(has(text, "room for a command at " __FILE__ ":")) << text;
  }
  EXPECT_EQ(kept.back().debug_get_from_remote(workers() - 1), Value(std::string(50000, 'x')));
  s.sync_all();
}

TEST(Hang, sigusr2_asks_for_a_report) {
  Session s = make_session();
  s.get_global_func("hang.computes")(0, 400);
  testing::internal::CaptureStderr();
  std::this_thread::sleep_for(100ms);
  raise(SIGUSR2);
  raise(SIGUSR1);  // does nothing
  s.sync_all();
  std::this_thread::sleep_for(100ms);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(has(text, "workers: SIGUSR2")) << text;
  EXPECT_TRUE(has(text, "computes hang.computes in command 2 since ")) << text;
}

TEST(Hang, collectives_in_another_order_are_an_error_that_names_who_waits_for_whom) {
  if (workers() < 2) GTEST_SKIP() << "needs 2 workers";
  Session s = make_session();
  for (const char* name : {"hang.inverted", "hang.both_send", "hang.ring_of_sends"}) {
    const auto start = std::chrono::steady_clock::now();
    s.get_global_func(name)();
    const std::string message = message_of<RemoteError>([&] { s.sync_all(20s); });
    EXPECT_TRUE(has(message, "deadlock in command ")) << name << message;
    EXPECT_TRUE(has(message, "worker 0 waits in ")) << name << message;
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << name;
    s.sync_all();
  }
}

TEST(Hang, a_long_wait_is_no_deadlock) {
  Session s = make_session();
  s.get_global_func("hang.slow_chain")();
  s.sync_all();
}

}  // namespace
