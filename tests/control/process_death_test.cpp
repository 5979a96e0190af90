// A worker process that dies: the controller lives, is told who and how, and the next session starts fresh ones. And how worker
// processes end with their controller: for that this program runs itself again, as one of the controllers below.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
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
    EXPECT_FALSE(s.lost());  // until a call has said so
    const std::string text = message_of<TransportError>([&] { s.sync_all(); });
    EXPECT_NE(text.find("worker 2 (pid " + std::to_string(pid)), std::string::npos) << text;
    EXPECT_NE(text.find("signal 9 (Killed) in death.kill of command 5;"), std::string::npos) << text;
    EXPECT_TRUE(s.lost());
    EXPECT_THROW(s.sync_all(), TransportError);  // the session is over
    ProcessSession next(3);
    EXPECT_NE(next.get_global_func("death.pid")().debug_get_from_remote(2).as<int64_t>(), pid);
  }
}

TEST(ProcessDeath, inside_of_a_program_that_replays) {
  ProcessSession s(3);
  const DRef numbers = s.broadcast(Tensor::full<float>({4}, 1));
  const auto kill = s.get_global_func("death.kill");
  auto recording = s.record("deadly");
  const DRef who = recording.slot("who"), next = recording.slot("next");
  s.allreduce(numbers, numbers, "max");
  kill(who, SIGKILL);
  recording.assign(who, next);
  const Program program = recording.finish();
  program.repeat(1000, {-1, 2});
  const std::string text = message_of<TransportError>([&] { s.sync_all(); });
  EXPECT_NE(text.find("signal 9 (Killed) in death.kill in step 2 of program deadly, iteration 2 of command"), std::string::npos)
      << text;
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
    const auto pid = s.get_global_func("death.pid")().debug_get_from_remote(1).as<int64_t>();
    kill(static_cast<pid_t>(pid), SIGSEGV);
    siginfo_t ended{};
    waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT);
    const std::string text = message_of<TransportError>([&] { s.sync_all(); });
    EXPECT_NE(text.find("signal 11 (Segmentation fault) between commands;"), std::string::npos) << text;
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

TEST(ProcessDeath, while_a_large_tensor_travels) {
  std::mt19937 random(7);
  for (int i = 0; i < 12; ++i) {
    ProcessSession s(2);
    const auto pid = static_cast<pid_t>(s.get_global_func("death.pid")().debug_get_from_remote(1).as<int64_t>());
    const Tensor sent = Tensor::full<int32_t>({4 << 20}, i);
    DRef there = s.empty(sent.shape(), kInt32);
    there.debug_copy_from(1, sent);
    std::thread killer([&, after = std::chrono::microseconds(random() % 20000)] {
      std::this_thread::sleep_for(after);
      kill(pid, SIGKILL);
    });
    const std::string text = message_of<TransportError>([&] {
      for (;;) {
        ASSERT_EQ(there.debug_get_from_remote(1), Value(sent));
        there.debug_copy_from(1, sent);
      }
    });
    killer.join();
    EXPECT_NE(text.find("worker 1 (pid " + std::to_string(pid)), std::string::npos) << text;
  }
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

struct Program {
  int code = -1;  // 124: it did not end
  std::string out;
};

struct Folder {
  Folder() { EXPECT_NE(mkdtemp(path), nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
  char path[24] = "/tmp/tutti-test-XXXXXX";
};

std::string text_of(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();  // no exception for a process that ends meanwhile
  return text.str();
}

/// This program again, as one of the controllers. Its output goes into a file: a process that it leaves behind would keep a pipe
/// open.
Program run_again(const std::string& controller, const std::string& closed = "") {
  const Folder folder;
  const std::string output = std::string(folder.path) + "/output";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "timeout 20 " + self + " --controller " + controller + " >" + output + " 2>&1 " + closed;
  const int status = std::system(command.c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), .out = text_of(output)};
}

/// A process that has ended may wait for init to take note.
bool is_there(int64_t pid) {
  const std::string text = text_of("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_ends = text.rfind(')');
  return name_ends != std::string::npos && text[name_ends + 2] != 'Z';
}

pid_t fork_until(const std::function<bool()>& may_end) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  while (!may_end()) usleep(1000);
  _exit(0);
}

std::ofstream& written() {
  static std::ofstream file;
  return file;
}

const bool registered_for_ends = [] {
  register_global_func("end.write", [](std::string path) {
    std::printf("printf of worker %d\n", worker::id());
    std::cout << "cout of worker " << worker::id() << '\n';
    written().open(path + std::to_string(worker::id()));
    written() << "file of worker " << worker::id();
    std::atexit([] { std::fputs("atexit\n", stdout); });
  });
  register_global_func("end.close_descriptors", [] {
    if (worker::id() == 1)
      for (int fd = 3; fd < 1024; ++fd) close(fd);
  });
  return true;
}();

std::string output_path() { return std::getenv("TUTTI_TEST_OUTPUT"); }

void writes() {
  ProcessSession s(3);
  s.get_global_func("end.write")(output_path());
  s.sync_all();
}

TEST(ProcessEnd, keeps_what_workers_have_written) {
  const Folder folder;
  setenv("TUTTI_TEST_OUTPUT", (std::string(folder.path) + "/worker-").c_str(), 1);
  const Program program = run_again("writes");
  EXPECT_EQ(program.code, 0) << program.out;
  for (int w = 0; w < 3; ++w) {
    const std::string worker = " of worker " + std::to_string(w);
    EXPECT_NE(program.out.find("printf" + worker), std::string::npos) << program.out;
    EXPECT_NE(program.out.find("cout" + worker), std::string::npos) << program.out;
    EXPECT_EQ(text_of(output_path() + std::to_string(w)), "file" + worker);
  }
  unsetenv("TUTTI_TEST_OUTPUT");
}

void has_a_fork() {
  ProcessSession s(3);
  s.sync_all();
  fork_until([parent = getpid()] { return getppid() != parent; });
}

TEST(ProcessEnd, does_not_wait_for_a_fork_of_the_controller) {
  const Program program = run_again("has_a_fork");
  EXPECT_EQ(program.code, 0) << program.out;
  EXPECT_EQ(program.out.find("is killed"), std::string::npos) << program.out;  // as at the limit for the end
}

void stops_an_idle_worker() {
  ProcessSession s(3);
  const auto pid = s.get_global_func("death.pid")().debug_get_from_remote(1).as<int64_t>();
  s.shutdown();
  kill(static_cast<pid_t>(pid), SIGSTOP);
}

void stops_a_worker_of_a_live_session() {
  ProcessSession s(3);
  const auto pid = s.get_global_func("death.pid")().debug_get_from_remote(1).as<int64_t>();
  kill(static_cast<pid_t>(pid), SIGSTOP);
}

TEST(ProcessEnd, does_not_wait_for_a_worker_that_was_stopped) {
  for (const char* when : {"stops_an_idle_worker", "stops_a_worker_of_a_live_session"}) {
    const Program program = run_again(when);
    EXPECT_EQ(program.code, 0) << when << ": " << program.out;
    EXPECT_EQ(program.out.find("is killed"), std::string::npos) << program.out;  // as at the limit for the end
  }
}

/// "pids", those of the workers, and that of a fork of this controller.
void print_pids(Session s) {
  const DRef pid = s.get_global_func("death.pid")();
  std::string line = "pids";
  for (int w = 1; w < 3; ++w) line += ' ' + std::to_string(pid.debug_get_from_remote(w).as<int64_t>());
  line += ' ' + std::to_string(fork_until([] { return false; })) + '\n';
  std::cout << line << std::flush;  // at once: workers may write between
}

void is_killed_when_descriptors_are_closed() {
  ProcessSession s(3);
  print_pids(s);
  try {
    s.get_global_func("end.close_descriptors")();
    s.sync_all();
  } catch (const TransportError&) {  // a worker has found out already, and ended
  }
  kill(getpid(), SIGKILL);
}

void closes_descriptors() {
  ProcessSession s(3);
  try {
    s.get_global_func("end.close_descriptors")();
    s.sync_all();
  } catch (const TransportError&) {  // as above; what the worker says is on stderr
  }
}

TEST(ProcessEnd, of_workers_that_have_closed_their_descriptors) {
  const Program program = run_again("closes_descriptors");
  EXPECT_EQ(program.code, 0);
  // said by the worker's answer, or by its watch of the controller where that looks again before
  EXPECT_NE(program.out.find("closed descriptors that are not its own"), std::string::npos) << program.out;
}

void is_killed_beside_a_fork() {
  ProcessSession s(3);
  print_pids(s);
  kill(getpid(), SIGKILL);
}

void expect_workers_to_end(const char* test) {
  const Program program = run_again(test);
  const size_t at = program.out.find("pids");
  ASSERT_NE(at, std::string::npos) << program.out;
  std::istringstream pids(program.out.substr(at + 4));
  int64_t first = 0, second = 0, fork = 0;
  pids >> first >> second >> fork;
  ASSERT_TRUE(is_there(fork)) << program.out;
  for (int i = 0; i < 5000 && (is_there(first) || is_there(second)); ++i) usleep(1000);
  EXPECT_FALSE(is_there(first) || is_there(second));
  for (const int64_t pid : {first, second, fork})
    if (is_there(pid)) kill(static_cast<pid_t>(pid), SIGKILL);
}

TEST(ProcessEnd, comes_with_the_controllers_while_a_fork_of_it_lives) { expect_workers_to_end("is_killed_beside_a_fork"); }
TEST(ProcessEnd, comes_with_the_controllers_when_descriptors_are_closed) {
  expect_workers_to_end("is_killed_when_descriptors_are_closed");
}

const bool registered_for_streams = [] {
  register_global_func("streams.print", [] {
    std::cout << "hello from worker " << worker::id() << std::endl;
    std::cerr << "ugh" << std::endl;
  });
  return true;
}();

void print_on(Session s) {
  const Tensor ones = Tensor::full<float>({100000}, 1);
  for (int i = 0; i < 20; ++i) {
    s.get_global_func("streams.print")();
    const DRef x = s.broadcast(ones);
    s.allreduce(x, x);
    ASSERT_EQ(x.debug_get_from_remote(2).as<Tensor>().values<float>()[99999], 3) << i;
  }
}

/// Children that have ended and that nobody has waited for.
bool has_zombies() {
  siginfo_t ended{};
  return waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0;
}

void with_few_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &limit);
  ProcessSession(3).sync_all();
  EXPECT_NE(message_of<SystemError>([] { ProcessSession(100); }).find("Too many open files"), std::string::npos);
  for (int i = 0; i < 300 && !has_zombies(); ++i) usleep(1000);
  EXPECT_FALSE(has_zombies());
  ProcessSession(5).sync_all();
}

TEST(ProcessStart, needs_few_descriptors_and_leaves_no_zombies_when_it_fails) {
  const Program program = run_again("with_few_descriptors");
  EXPECT_EQ(program.code, 0) << program.out;
}

TEST(ProcessStart, refuses_a_variable_that_no_controller_has_set) {
  for (const char* value : {"199", "0", "x"}) {
    setenv("TUTTI_WORKER_SOCKET", value, 1);
    const Program program = run_again("writes");
    EXPECT_EQ(program.code, 99) << value << program.out;
    EXPECT_NE(program.out.find("TUTTI_WORKER_SOCKET="), std::string::npos) << program.out;
  }
  unsetenv("TUTTI_WORKER_SOCKET");
}

TEST(ProcessDeath, is_not_by_a_ctrl_c_that_the_controller_handles) {
  ProcessSession s(2);
  const auto pid = s.get_global_func("death.pid")().debug_get_from_remote(1).as<int64_t>();
  for (int i = 0; i < 3; ++i) {
    kill(static_cast<pid_t>(pid), SIGINT);
    s.sync_all();
  }
  EXPECT_EQ(s.get_global_func("death.pid")().debug_get_from_remote(1).as<int64_t>(), pid);
}

const bool registered_for_forks = [] {
  // the child comes back, by return or by an exception, or sums and comes back by the exception of that
  register_global_func("fork.comes_back", [](std::string how) -> int64_t {
    const pid_t child = fork();
    if (child == 0) {
      const Tensor one = Tensor::full<float>({1}, 1);
      if (how == "sums") worker::world().allreduce(one, one);
      if (how == "throws") throw std::runtime_error("in the child");
      return 0;
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  });
  return true;
}();

void come_back(Session s) {
  for (const char* how : {"returns", "throws", "sums"}) {
    const DRef code = s.get_global_func("fork.comes_back")(how);
    for (int w = 0; w < 3; ++w) EXPECT_EQ(code.debug_get_from_remote(w).as<int64_t>(), 1) << how << w;
    const DRef x = s.broadcast(Tensor::full<float>({10}, 1));
    EXPECT_EQ(s.allreduce(x, x).debug_get_from_remote(2).as<Tensor>().values<float>()[9], 3);
  }
}

TEST(ProcessFork, that_comes_back_from_a_function_ends) {
  come_back(ProcessSession(3));
  come_back(ThreadedSession(3));
}

const bool registered_for_threads = register_global_func("death.thread", [](int who) {
  if (worker::id() == who) pthread_exit(nullptr);
});

TEST(ThreadDeath, by_pthread_exit_is_a_transport_error_that_names_worker_and_function) {
  for (const int who : {0, 1}) {
    const std::string expected = "worker " + std::to_string(who) + " (pid ";
    for (const bool is_process : {false, true}) {
      Session s = is_process ? Session(ProcessSession(3)) : Session(ThreadedSession(3));
      s.get_global_func("death.thread")(who);
      const std::string text = message_of<TransportError>([&] { s.sync_all(); });
      EXPECT_NE(text.find(expected), std::string::npos) << text;
      EXPECT_NE(text.find("death.thread has ended the worker's thread"), std::string::npos) << text;
    }
  }
  ProcessSession(3).sync_all();
}

void print() {
  print_on(ProcessSession(3));
  print_on(ThreadedSession(3));
}

TEST(ProcessStreams, that_were_closed_become_no_file_of_ours) {
  for (const char* closed : {"0>&-", "1>&-", "2>&-", "1>&- 2>&-", "0>&- 1>&- 2>&-"}) {
    const Program program = run_again("print", closed);
    EXPECT_EQ(program.code, 0) << closed << program.out;
  }
}

const std::map<std::string, void (*)()> kControllers{
    {"writes", writes},
    {"has_a_fork", has_a_fork},
    {"stops_an_idle_worker", stops_an_idle_worker},
    {"stops_a_worker_of_a_live_session", stops_a_worker_of_a_live_session},
    {"closes_descriptors", closes_descriptors},
    {"with_few_descriptors", with_few_descriptors},
    {"print", print},
    {"is_killed_beside_a_fork", is_killed_beside_a_fork},
    {"is_killed_when_descriptors_are_closed", is_killed_when_descriptors_are_closed},
};

}  // namespace

int main(int argc, char** argv) {
  return tutti::run(argc, argv, [](int n, char** words) {
    testing::InitGoogleTest(&n, words);
    if (n != 3 || words[1] != std::string("--controller")) return RUN_ALL_TESTS();
    kControllers.at(words[2])();
    return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
  });
}
