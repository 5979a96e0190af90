// A worker process that dies: the controller lives, is told who and how, and the next session starts fresh ones.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

const bool registered = [] {
  register_global_func("death.pid", [] { return static_cast<int64_t>(getpid()); });
  register_global_func("death.kill", [](int who, int signal) {
    if (worker::id() == who) raise(signal);
  });
  register_global_func("death.exit", [](int who) {
    if (worker::id() == who) _exit(3);
  });
  register_global_func("death.in_collective", [](int who) {
    if (worker::id() == who) raise(SIGKILL);
    Tensor t = Tensor::full<float>({4}, 1);
    worker::world().allreduce(t, t);
  });
  return true;
}();

TEST(ProcessDeath, is_a_transport_error_that_names_worker_pid_and_signal) {
  for (int i = 0; i < 3; ++i) {
    ProcessSession s(3);
    const auto pid = s.get_global_func("death.pid")().debug_get_from_remote(2).as<int64_t>();
    s.get_global_func("death.kill")(2, SIGKILL);
    const std::string text = message_of<TransportError>([&] { s.sync_all(); });
    EXPECT_NE(text.find("worker 2 (pid " + std::to_string(pid)), std::string::npos) << text;
    EXPECT_NE(text.find("signal 9"), std::string::npos) << text;
    EXPECT_THROW(s.sync_all(), TransportError);  // the session is over
    ProcessSession next(3);
    EXPECT_NE(next.get_global_func("death.pid")().debug_get_from_remote(2).as<int64_t>(), pid);
  }
}

TEST(ProcessDeath, by_exit_and_inside_a_collective_and_while_commands_are_issued) {
  {
    ProcessSession s(2);
    s.get_global_func("death.exit")(1);
    EXPECT_NE(message_of<TransportError>([&] { s.sync_worker_0(), s.sync_worker(1); }).find("exit code 3"), std::string::npos);
  }
  {
    ProcessSession s(4);
    s.get_global_func("death.in_collective")(1);
    EXPECT_NE(message_of<TransportError>([&] { s.sync_all(); }).find("worker 1"), std::string::npos);
  }
  {
    ProcessSession s(2);
    auto f = s.get_global_func("death.pid");
    s.get_global_func("death.kill")(1, SIGSEGV);
    EXPECT_THROW(for (int i = 0; i < 1000000; ++i) f(), TransportError);  // the ring fills up
  }
  ProcessSession next(4);
  next.sync_all();
}

TEST(ProcessDeath, leaves_no_process_behind) {
  std::vector<int64_t> pids;
  {
    ProcessSession s(4);
    DRef pid = s.get_global_func("death.pid")();
    for (int w = 1; w < 4; ++w) pids.push_back(pid.debug_get_from_remote(w).as<int64_t>());
    s.get_global_func("death.kill")(3, SIGKILL);
    EXPECT_THROW(s.sync_all(), TransportError);
  }
  for (int64_t pid : pids) EXPECT_NE(kill(static_cast<pid_t>(pid), 0), 0) << pid;
}

}  // namespace
