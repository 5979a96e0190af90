// What callers do wrong: a UsageError with the remedy, at once, and the session goes on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

Session* session_for_workers = nullptr;  // worker 0 lives in the controller's process
DRef* dref_for_workers = nullptr;

const bool registered = [] {
  register_global_func("misuse.make", [](const std::string& type) {
    if (type == "ThreadedSession") ThreadedSession(1);
    else if (type == "ProcessSession") ProcessSession(1);
    else Session::create();
  });
  register_global_func("misuse.echo", [](const Value& v) { return v; });
  register_global_func("misuse.noexcept", [](int64_t a) noexcept { return a + 1; });
  register_global_func("misuse.sleep_ms", [](int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
  register_global_func("misuse.sync_inside", [] {
    if (session_for_workers) session_for_workers->sync_all();
  });
  register_global_func("misuse.get_inside", [] {
    if (dref_for_workers) dref_for_workers->debug_get_from_remote(0);
  });
  return true;
}();

// what can't travel does not even compile
enum Unscoped { kBlue };
static_assert(!std::is_convertible_v<float*, Value> && !std::is_convertible_v<void*, Value> &&
              !std::is_convertible_v<Unscoped, Value>);
static_assert(std::is_convertible_v<bool, Value> && std::is_convertible_v<const char*, Value> &&
              std::is_convertible_v<float, Value>);

TEST(Misuse, is_a_usage_error_with_the_remedy) {
  Session s = make_session();
  auto echo = s.get_global_func("misuse.echo");
  EXPECT_NE(message_of<UsageError>([&] { s.sync_worker(workers()); }).find("expected 0 to"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { s.sync_worker(-1); }).find("expected 0 to"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { s.empty({2, -1}, kFloat32); }).find("negative extent"), std::string::npos);
  EXPECT_THROW(s.empty({int64_t{1} << 62}, kFloat32), UsageError);
  DRef r = echo(1);
  EXPECT_THROW(r.debug_get_from_remote(-1), UsageError);
  EXPECT_THROW(r.debug_get_from_remote(workers()), UsageError);
  EXPECT_THROW(DRef().debug_get_from_remote(0), UsageError);
  EXPECT_NE(message_of<UsageError>([&] { echo(1, DRef()); }).find("argument 2: an empty DRef"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { echo(Tensor::empty({70000}, kUInt8)); }).find("argument 1"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { echo(1, 2, make_opaque(3)); }).find("argument 3"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { s.allreduce(r, DRef()); }).find("allreduce: argument 4: an empty DRef"),
            std::string::npos);
  EXPECT_THROW(s.allreduce(r, r, "median"), UsageError);
  EXPECT_THROW(worker::id(), UsageError);
  EXPECT_THROW(worker::world(), UsageError);
  EXPECT_THROW(s.copy_to_worker_0(Tensor()), UsageError);
  for (int w = 0; w < workers(); ++w) {
    EXPECT_NE(message_of<UsageError>([&] { r.debug_copy_from(w, r); }).find("a DRef"), std::string::npos) << w;
    EXPECT_NE(message_of<UsageError>([&] { r.debug_copy_from(w, List{r}); }).find("a DRef"), std::string::npos) << w;
  }
  s.sync_all();
  s.shutdown();
  EXPECT_NE(message_of<UsageError>([&] { s.sync_all(); }).find("was shut down"), std::string::npos);
  EXPECT_THROW(echo(1), UsageError);
  EXPECT_THROW(r.debug_get_from_remote(0), UsageError);
  EXPECT_THROW(ThreadedSession(0), UsageError);
  EXPECT_THROW(ThreadedSession(3, 2), UsageError);
}

TEST(Misuse, refused_arguments_lose_no_register) {
  Session s = make_session();
  auto echo = s.get_global_func("misuse.echo");
  const auto id_of = [](const DRef& ref) { return std::get<RegisterRef>(Value(ref).data()).id; };
  const int64_t before = id_of(echo(1));
  for (int i = 0; i < 100; ++i) EXPECT_THROW(echo(make_opaque(i)), UsageError);
  EXPECT_LE(id_of(echo(1)), before + 1);
  EXPECT_EQ(s.get_global_func("misuse.noexcept")(1).debug_get_from_remote(workers() - 1), Value(2));
}

TEST(Misuse, a_worker_function_that_uses_a_session) {
  Session s = make_session();
  DRef ref = s.get_global_func("misuse.echo")(1);
  session_for_workers = &s;
  dref_for_workers = &ref;
  for (const char* name : {"misuse.sync_inside", "misuse.get_inside"}) {
    s.get_global_func(name)();
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("a worker function can't use a session (worker 0"),
              std::string::npos);
  }
  session_for_workers = nullptr;
  dref_for_workers = nullptr;
  s.sync_all();
}

TEST(Misuse, a_worker_function_that_makes_a_session) {
  Session s = make_session();
  for (const char* type : {"ThreadedSession", "ProcessSession", "Session::create"}) {
    s.get_global_func("misuse.make")(type);
    EXPECT_NE(message_of<RemoteError>([&] {
                s.sync_all();
              }).find(std::string(type) + ": a worker function can't make a session (worker "),
              std::string::npos)
        << type;
  }
  s.sync_all();
}

TEST(Misuse, a_foreign_destination_is_refused_before_anything_is_sent) {
  Session s = make_session();
  ThreadedSession other(1);
  const DRef foreign = other.empty({2}, kFloat32);
  EXPECT_EQ(message_of<UsageError>([&] {
              s.broadcast(floats({1, 2}), foreign);
            }),
            "broadcast: dst: the DRef belongs to another session");
  EXPECT_EQ(message_of<UsageError>([&] {
              s.scatter(floats(iota(2 * workers()), {workers(), 2}), foreign);
            }),
            "scatter: dst: the DRef belongs to another session");
  s.sync_all();
}

TEST(Misuse, a_fork_of_the_controller_has_no_session) {
  Session s = make_session();
  DRef kept = s.get_global_func("misuse.echo")(7);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = message_of<UsageError>([&] { s.sync_all(); }).find("a fork of it") != std::string::npos;
    kept = {};
    s = ThreadedSession(1);  // drops the handle: must touch nothing of the parent's
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(kept.debug_get_from_remote(workers() - 1), Value(7));
}

TEST(Misuse, calls_that_overlap_in_time_are_refused) {
  Session s = make_session();
  s.get_global_func("misuse.sleep_ms")(300);
  std::thread other([&] { s.sync_all(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_NE(message_of<UsageError>([&] { s.sync_all(); }).find("overlap in time"), std::string::npos);
  other.join();
  // and are never a race: some are refused, the others work
  DRef src = s.broadcast(floats({1, 2})), dst = s.empty({2}, kFloat32);
  std::atomic<int> done{0};
  auto issue = [&] {
    for (int i = 0; i < 50; ++i) try {
        s.allreduce(src, dst);
        s.barrier();
        ++done;
      } catch (const UsageError&) {
      }
  };
  std::thread a(issue), b(issue);
  a.join();
  b.join();
  EXPECT_GT(done.load(), 0);
  s.sync_all();
}

TEST(Misuse, the_last_handle_is_dropped_while_another_thread_waits) {
  auto s = std::make_unique<Session>(make_session());
  s->get_global_func("misuse.sleep_ms")(200);
  DRef r = s->get_global_func("misuse.echo")(3);
  Value got;
  std::thread waits([&] { got = r.debug_get_from_remote(0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  s.reset();
  waits.join();
  EXPECT_EQ(got, Value(3));
}

}  // namespace
