#include "control/channel/node/process_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>

#include "control/worker/worker.h"
#include "core/env.h"
#include "core/exit_codes.h"
#include "core/log.h"
#include "core/process.h"
#include "core/signals.h"
#include "core/traceback.h"
#include "tutti/interop/embed.h"

extern char** environ;

namespace tutti::detail {
namespace {

constexpr const char* kEnvironment = "TUTTI_WORKER_SOCKET";
constexpr std::chrono::seconds kToEnd{10};  // for a worker's threads and atexit functions

[[noreturn]] void fail(const char* what, int error) { throw SystemError(fmt::format("{}: {}", what, std::strerror(error))); }

/// What posix_spawn does in the child: standard input is empty, the socket keeps its number, SIGINT waits until the worker is
/// ready for it.
struct ChildSetUp {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  explicit ChildSetUp(int socket) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, socket, socket);  // not closed by exec
    posix_spawnattr_init(&attributes);
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    sigaddset(&blocked, SIGINT);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  }
  ~ChildSetUp() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
  }
};

void send_message(int socket, const std::vector<std::byte>& bytes, const char* what) {
  if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) fail(what, errno);
}

/// Empty: the other end is closed.
std::vector<std::byte> receive_message(int socket) {
  std::vector<std::byte> bytes(size_t{64} * 1024);
  ssize_t n = 0;
  do n = ::recv(socket, bytes.data(), bytes.size(), 0);
  while (n < 0 && errno == EINTR);
  if (n < 0 && errno != ECONNRESET) fail("reading from a worker's socket", errno);
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

std::atomic<bool> is_in_session{false};  // this process, of a pool

void serve_session(int socket, const std::vector<std::byte>& message) {
  Reader in(message);
  const Layout layout = decode_layout(in);
  const auto worker = in.get<int32_t>(), fd = in.get<int32_t>();
  const auto pid = in.get<int64_t>();
  const auto answer = [&](std::string_view problem) {
    Writer out;
    out.text(problem);
    send_message(socket, out.bytes(), "answer to the controller (has a function closed descriptors that are not its own?)");
  };
  std::optional<Segment> segment;
  try {
    segment.emplace(SharedMemory::open(static_cast<pid_t>(pid), fd), layout, 0);
  } catch (const Error& error) {
    return answer(error.what());
  }
  is_in_session.store(true);
  {
    Worker self(*segment, worker, nullptr, nullptr);
    answer("");  // in
    self.serve();
  }
  is_in_session.store(false);
  answer("");  // and out
}

}  // namespace

ProcessPool& ProcessPool::instance() {
  static ProcessPool* pool = new ProcessPool;  // leaked: exit() calls end_all
  return *pool;
}

void ProcessPool::remember_program(std::vector<std::string> arguments) {
  std::lock_guard lock(mutex_);
  program_ = std::move(arguments);
}

WorkerProcess ProcessPool::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair", errno);
  WorkerProcess process{.socket = Fd(ends[0])};
  Fd child_end(ends[1]);
  const ChildSetUp child(child_end.get());
  std::vector<char*> arguments, variables;
  for (std::string& argument : program_) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  std::string variable = fmt::format("{}={}", kEnvironment, child_end.get());
  for (char** v = environ; *v; ++v) variables.push_back(*v);
  variables.push_back(variable.data());
  variables.push_back(nullptr);
  if (const int error =
          ::posix_spawn(&process.pid, "/proc/self/exe", &child.files, &child.attributes, arguments.data(), variables.data()))
    fail("starting a worker process", error);
  return process;
}

std::vector<WorkerProcess> ProcessPool::take(size_t count) {
  if (program_.empty())
    throw UsageError(
        "ProcessSession: the program executes itself again as a worker, which needs tutti::run: "
        "int main(int argc, char** argv) { return tutti::run(argc, argv, controller); }");
  std::lock_guard lock(mutex_);
  if (std::exchange(generation_, process_generation()) != process_generation()) {
    idle_.clear();  // a fork of the process whose workers these are
    static const bool ends_with_us [[maybe_unused]] = std::atexit([] { instance().end_all(); }) == 0;
  }
  std::vector<WorkerProcess> taken;
  while (taken.size() < count && !idle_.empty()) {
    if (!how_it_ended(idle_.back().pid)) taken.push_back(std::move(idle_.back()));
    idle_.pop_back();
  }
  try {
    while (taken.size() < count) taken.push_back(start());
  } catch (...) {
    std::ranges::move(taken, std::back_inserter(idle_));  // the next session's
    throw;
  }
  return taken;
}

void ProcessPool::give_back(std::vector<WorkerProcess> processes) {
  std::lock_guard lock(mutex_);
  for (WorkerProcess& process : processes) idle_.push_back(std::move(process));
}

/// Workers end as programs do: they flush what they have written and call their atexit functions.
void ProcessPool::end_all() {
  std::lock_guard lock(mutex_);
  if (generation_ != process_generation()) return;  // a fork
  for (WorkerProcess& process : idle_) {
    ::shutdown(process.socket.get(), SHUT_RDWR);  // close() alone does nothing while a fork of ours has the socket, too
    ::kill(process.pid, SIGCONT);                 // a stopped process can't end
  }
  const auto deadline = Clock::now() + kToEnd;
  for (WorkerProcess& process : idle_) {
    bool has_ended = false;
    while (!(has_ended = how_it_ended(process.pid).has_value()) && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (has_ended) continue;
    log(LogLevel::kWarn,
        "worker process {} is killed: it has not ended {} s after its last session (a thread, or an atexit function, goes on)",
        process.pid, kToEnd.count());
    kill_process(process.pid);
  }
  idle_.clear();
}

void kill_process(pid_t pid) noexcept {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

void start_session(const WorkerProcess& process, const Segment& segment, int worker) {
  Writer out;
  encode(out, segment.layout());
  out.put(static_cast<int32_t>(worker));
  out.put(static_cast<int32_t>(segment.fd()));
  out.put(static_cast<int64_t>(getpid()));
  send_message(process.socket.get(), out.bytes(), "message to a worker process");
}

void await_answer(const WorkerProcess& process, int worker, std::chrono::milliseconds timeout) {
  pollfd waiting{process.socket.get(), POLLIN, 0};
  int ready = 0;
  do ready = ::poll(&waiting, 1, static_cast<int>(timeout.count()));
  while (ready < 0 && errno == EINTR);
  std::string problem = fmt::format("did not answer within {} ms", timeout.count());
  if (ready > 0) {
    const auto bytes = receive_message(process.socket.get());
    if (!bytes.empty()) {
      Reader in(bytes);
      problem = in.text();
      if (problem.empty()) return;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the exit code follows the closed socket
      problem = how_it_ended(process.pid).value_or("closed its socket; does its main call tutti::run first?");
    }
  }
  throw TransportError(fmt::format("worker {} (pid {} on {}): {}", worker, process.pid, host_name(), problem));
}

std::optional<std::string> how_it_ended(pid_t pid) {
  int status = 0;
  const pid_t changed = ::waitpid(pid, &status, WNOHANG);
  if (changed == 0) return std::nullopt;
  if (changed < 0) return "ended";
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

namespace {

/// Ends this process when its controller has gone. A worker between sessions returns to main and ends as programs do.
void watch_controller(int socket, pid_t controller) {
  std::thread([socket, controller] {
    const Fd process = open_pidfd(controller);  // a fork of the controller may hold the socket for longer
    pollfd waiting[] = {{socket, POLLRDHUP, 0}, {process.get(), POLLIN, 0}};
    while (::getppid() == controller &&
           (::poll(waiting, 2, process ? -1 : 1000) <= 0 || !(waiting[0].revents | waiting[1].revents))) {
    }
    if ((waiting[0].revents | waiting[1].revents) & POLLNVAL) {
      log(LogLevel::kError, "worker process: a function has closed descriptors that are not its own");
      ::_exit(1);
    }
    ::shutdown(socket, SHUT_RDWR);                                       // wakes receive_message
    if (!is_in_session.load()) std::this_thread::sleep_for(2 * kToEnd);  // a controller that lives says so and kills us before
    ::_exit(0);
  }).detach();
}

}  // namespace

std::optional<int> serve_if_worker_process() {
  const auto text = env_string(kEnvironment);
  if (!text) return std::nullopt;
  const int socket = static_cast<int>(env_int(kEnvironment, -1, 0, 1 << 20));
  ucred controller{};
  socklen_t size = sizeof controller;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &controller, &size) != 0 || controller.pid != ::getppid())
    throw SetUpError(fmt::format(
        "{}={}: this descriptor is no socket of the process that started this one; only a ProcessSession sets the variable, "
        "for the workers that it starts: unset it",
        kEnvironment, socket));
  ::unsetenv(kEnvironment);
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  watch_signals(false);
  leave_interrupts_to_controller();
  watch_controller(socket, controller.pid);
  try {
    for (;;) {
      const auto message = receive_message(socket);
      if (message.empty()) return 0;  // to main, which ends the program
      serve_session(socket, message);
    }
  } catch (const ThreadEnds&) {
    end_process(kExitUncaught);  // other threads would keep the process
  } catch (const std::exception& error) {
    log(LogLevel::kError, "worker process: {}", error.what());
    return 1;
  }
}

}  // namespace tutti::detail

void tutti::interop::set_worker_program(std::vector<std::string> arguments) {
  detail::ProcessPool::instance().remember_program(std::move(arguments));
}
