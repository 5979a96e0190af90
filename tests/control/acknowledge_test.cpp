// What is raised when, and what that clears: failures of several workers, consequences, and calls that do not wait for all.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

/// A file that workers of any process wait for, and a test opens when it is time.
class Gate {
 public:
  Gate()
      : path_(testing::TempDir() + "tutti-gate-" + std::to_string(getpid()) + "-" +
              std::to_string(reinterpret_cast<uintptr_t>(this))) {}
  ~Gate() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  void open() const { std::ofstream(path_).put('\n'); }

 private:
  std::string path_;
};
void wait_at(const std::string& gate) {
  while (access(gate.c_str(), F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::shared_ptr<int> watched;  // by a test, in the controller's process

const bool registered = [] {
  register_global_func("acknowledge.echo", [](const Value& v) { return v; });
  register_global_func("acknowledge.on", [](const Shape& workers, const std::string& text) {
    for (int64_t w : workers)
      if (w == worker::id()) throw std::runtime_error(text);
  });
  register_global_func("acknowledge.hold_object", [] { return watched; });
  register_global_func("acknowledge.at_gate", [](int on, const std::string& gate, const std::string& text) {
    if (worker::id() != on) return;
    wait_at(gate);
    throw std::runtime_error(text);
  });
  register_global_func("acknowledge.on_while_0_computes", [](int on, const std::string& gate) {
    if (worker::id() == 0) wait_at(gate);
    if (worker::id() == on) throw std::runtime_error("told to");
  });
  register_global_func("acknowledge.declines_and_computes", [](int on, const std::string& gate) {
    const Tensor one = Tensor::full<float>({4}, 1);
    if (worker::id() != on) return worker::world().allreduce(one, Tensor::like(one));
    EXPECT_THROW(worker::world().allreduce(one, Tensor::full<float>({3}, 0)), UsageError);
    wait_at(gate);
  });
  return true;
}();

TEST(Acknowledgement, sync_worker_raises_what_has_arrived_of_others) {
  Session s = make_session_of_several();
  s.get_global_func("acknowledge.on")(Shape{1}, "of another");
  std::string text;
  while (text.empty()) text = message_of<RemoteError>([&] { s.sync_worker(0); });  // until it has arrived
  EXPECT_NE(text.find("of another"), std::string::npos) << text;
  s.sync_all();
}

TEST(Acknowledgement, acknowledging_one_failure_leaves_another_worker_skipping_for_its_own) {
  Session s = make_session_of_several();
  auto echo = s.get_global_func("acknowledge.echo");
  s.get_global_func("acknowledge.on")(Shape{0}, "error A");
  const Gate gate;
  s.get_global_func("acknowledge.at_gate")(1, gate.path(), "error B");
  const std::string first = message_of<RemoteError>([&] { s.sync_worker(0); });
  EXPECT_NE(first.find("error A"), std::string::npos) << first;
  EXPECT_EQ(first.find("error B"), std::string::npos) << first;
  DRef x = echo(5);  // carries the acknowledgement of A: worker 0 goes on, worker 1 gets to it after B
  EXPECT_EQ(x.debug_get_from_remote(0), Value(5));
  gate.open();
  const std::string second = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(second.find("error B"), std::string::npos) << second;
  EXPECT_EQ(second.find("error A"), std::string::npos) << second;
  EXPECT_NE(message_of<RemoteError>([&] { (void)x.debug_get_from_remote(1); }).find("error B"), std::string::npos);  // lost there
  EXPECT_EQ(echo(6).debug_get_from_remote(1), Value(6));
  s.sync_all();
}

TEST(Acknowledgement, a_worker_that_skips_still_looks_up_functions_and_frees_registers) {
  Session s = make_session();
  const int last = workers() - 1;
  const std::weak_ptr<int> alive = watched = std::make_shared<int>(1);
  DRef held = s.get_global_func("acknowledge.hold_object")();
  s.sync_all();
  watched.reset();
  s.get_global_func("acknowledge.on")(Shape{last}, "skips from here");
  held = {};
  auto echo = s.get_global_func("acknowledge.echo");
  DRef skipped = echo(1);
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("skips from here"), std::string::npos);
  if (kind() == "thread") {
    EXPECT_TRUE(alive.expired());
  }
  EXPECT_EQ(echo(2).debug_get_from_remote(last), Value(2));  // the function was looked up meanwhile
  EXPECT_NE(message_of<RemoteError>([&] { (void)skipped.debug_get_from_remote(last); }).find("skips from here"),
            std::string::npos);
}

TEST(Acknowledgement, a_time_out_tells_what_has_failed_by_then) {
  Session s = make_session_of_several();
  const Gate gate;
  s.get_global_func("acknowledge.on_while_0_computes")(1, gate.path());
  std::string text;
  for (int times = 0; times < 100 && text.find("told to") == std::string::npos; ++times)  // until it has arrived
    text = message_of<TimeoutError>([&] { s.sync_all(std::chrono::milliseconds(200)); });
  gate.open();
  EXPECT_NE(text.find("computes acknowledge.on_while_0_computes"), std::string::npos) << text;
  EXPECT_NE(text.find("failures that had arrived by then:"), std::string::npos) << text;
  EXPECT_NE(text.find("told to"), std::string::npos) << text;
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("told to"), std::string::npos);  // once
  s.sync_all();
}

TEST(Acknowledgement, a_session_that_ends_after_a_consequence_waits_for_who_computes_on) {
  testing::internal::CaptureStderr();
  const Gate gate;
  std::thread opens;
  {
    Session s = make_session_of_several();
    s.get_global_func("acknowledge.declines_and_computes")(1, gate.path());
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_worker(0); }), "");
    opens = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3500));
      gate.open();
    });
  }
  opens.join();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  Session s = make_session_of_several();
  s.sync_all();
}

TEST(Acknowledgement, a_consequence_does_not_wait_for_a_member_that_caught_its_error_and_computes_on) {
  Session s = make_session_of_several();
  const Gate gate;
  s.get_global_func("acknowledge.declines_and_computes")(1, gate.path());
  const std::string text = message_of<RemoteError>([&] { s.sync_worker(0); });
  EXPECT_NE(text.find(" has left it after its failure at command 2"), std::string::npos) << text;
  gate.open();
  s.sync_all();
  EXPECT_EQ(s.get_global_func("acknowledge.echo")(5).debug_get_from_remote(0), Value(5));
}

TEST(Acknowledgement, shutdown_raises_what_nobody_asked_for_and_destructors_do_not) {
  {
    Session s = make_session();
    s.get_global_func("acknowledge.on")(Shape{0}, "unreported");
    EXPECT_NE(message_of<RemoteError>([&] { s.shutdown(); }).find("unreported"), std::string::npos);
    s.shutdown();  // again: nothing
  }
  testing::internal::CaptureStderr();
  {
    Session s = make_session();
    s.get_global_func("acknowledge.on")(Shape{workers() - 1}, "unreported");
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("unreported failure of a session that went out of scope"), std::string::npos) << log;
  Session s = make_session();
  s.sync_all();
}

}  // namespace
