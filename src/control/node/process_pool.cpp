#include "control/node/process_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "control/builtins.h"
#include "control/signals.h"
#include "control/worker.h"
#include "core/env.h"
#include "core/log.h"
#include "tutti/interop/embed.h"

extern char** environ;

namespace tutti {
namespace {

constexpr const char* kEnvironment = "TUTTI_WORKER_SOCKET";
constexpr int kChildSocket = 199;

[[noreturn]] void fail(const char* what, int error) {
  throw SystemError(fmt::format("{}: {}", what, std::strerror(error)));
}

struct SpawnActions {
  posix_spawn_file_actions_t raw;
  SpawnActions() { posix_spawn_file_actions_init(&raw); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&raw); }
};

void send_message(int socket, const std::vector<std::byte>& bytes) {
  if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) fail("message to a worker process", errno);
}

/// Empty: the other end is closed.
std::vector<std::byte> receive_message(int socket) {
  std::vector<std::byte> bytes(size_t{64} * 1024);
  ssize_t n = 0;
  do n = ::recv(socket, bytes.data(), bytes.size(), 0);
  while (n < 0 && errno == EINTR);
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

void serve_session(int socket, const std::vector<std::byte>& message) {
  Reader in(message);
  const Layout layout = decode_layout(in);
  const auto worker = in.get<int32_t>(), fd = in.get<int32_t>();
  const auto pid = in.get<int64_t>();
  const auto answer = [&](std::string_view problem) {
    Writer out;
    out.text(problem);
    send_message(socket, out.bytes());
  };
  std::optional<Segment> segment;
  try {
    segment.emplace(SharedMemory::open(static_cast<pid_t>(pid), fd), layout, 0);
  } catch (const Error& error) {
    return answer(error.what());
  }
  Worker self(*segment, worker, nullptr, nullptr);
  answer("");  // in
  self.serve();
  answer("");  // and out
}

}  // namespace

ProcessPool& ProcessPool::instance() {
  static ProcessPool* pool = new ProcessPool;  // leaked: the processes end when their sockets close
  return *pool;
}

void ProcessPool::remember_program(std::vector<std::string> arguments) {
  std::lock_guard lock(mutex_);
  program_ = std::move(arguments);
}

void interop::set_worker_program(std::vector<std::string> arguments) { ProcessPool::instance().remember_program(std::move(arguments)); }

WorkerProcess ProcessPool::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair", errno);
  WorkerProcess process{.socket = Fd(ends[0])};
  Fd child_end(ends[1]);
  SpawnActions actions;
  posix_spawn_file_actions_addopen(&actions.raw, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions.raw, child_end.get(), kChildSocket);
  std::vector<char*> arguments, variables;
  for (std::string& argument : program_) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  std::string variable = fmt::format("{}={}", kEnvironment, kChildSocket);
  for (char** v = environ; *v; ++v) variables.push_back(*v);
  variables.push_back(variable.data());
  variables.push_back(nullptr);
  if (const int error = ::posix_spawn(&process.pid, "/proc/self/exe", &actions.raw, nullptr, arguments.data(), variables.data()))
    fail("starting a worker process", error);
  return process;
}

std::vector<WorkerProcess> ProcessPool::take(size_t count) {
  if (program_.empty())
    throw UsageError("ProcessSession: the program executes itself again as a worker, which needs tutti::run: "
                     "int main(int argc, char** argv) { return tutti::run(argc, argv, controller); }");
  std::lock_guard lock(mutex_);
  std::vector<WorkerProcess> taken;
  while (taken.size() < count && !idle_.empty()) {
    if (!how_it_ended(idle_.back().pid)) taken.push_back(std::move(idle_.back()));
    idle_.pop_back();
  }
  while (taken.size() < count) taken.push_back(start());
  return taken;
}

void ProcessPool::give_back(std::vector<WorkerProcess> processes) {
  std::lock_guard lock(mutex_);
  for (WorkerProcess& process : processes) idle_.push_back(std::move(process));
}

void ProcessPool::end_all() {
  std::lock_guard lock(mutex_);
  for (WorkerProcess& process : idle_) {
    process.socket.reset();
    ::waitpid(process.pid, nullptr, 0);
  }
  idle_.clear();
}

void start_session(const WorkerProcess& process, const Segment& segment, int worker) {
  Writer out;
  encode(out, segment.layout());
  out.put(static_cast<int32_t>(worker));
  out.put(static_cast<int32_t>(segment.fd()));
  out.put(static_cast<int64_t>(getpid()));
  send_message(process.socket.get(), out.bytes());
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

std::optional<int> serve_if_worker_process() {
  const auto text = env_string(kEnvironment);
  if (!text) return std::nullopt;
  const int socket = static_cast<int>(env_int(kEnvironment, -1, 0, 1 << 20));
  ::unsetenv(kEnvironment);
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  register_builtins();
  watch_signals();
  // whatever this worker does, it goes when its controller goes
  std::thread([socket] {
    pollfd waiting{socket, POLLRDHUP, 0};
    while (::poll(&waiting, 1, -1) <= 0 || !(waiting.revents & (POLLRDHUP | POLLHUP | POLLERR))) {
    }
    ::_exit(0);
  }).detach();
  for (;;) {
    const auto message = receive_message(socket);
    if (message.empty()) ::_exit(0);
    try {
      serve_session(socket, message);
    } catch (const std::exception& error) {
      log(LogLevel::kError, "worker process: {}", error.what());
      ::_exit(1);
    }
  }
}

}  // namespace tutti
