#include "run/forward.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "core/handle.h"
#include "run/frames.h"
#include "run/process.h"
#include "tutti/error.h"

namespace tutti::launcher {
using namespace detail;
namespace {

struct Ends {
  Fd read, write;
};

Ends open_pipe() {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw SystemError(fmt::format("pipe: {}", std::strerror(errno)));
  return {.read = Fd(ends[0]), .write = Fd(ends[1])};
}
/// As mpirun has it: programs write line by line to a terminal.
Ends open_terminal() {
  int master = -1, slave = -1;
  termios modes{};
  cfmakeraw(&modes);
  if (openpty(&master, &slave, nullptr, &modes, nullptr) != 0) return open_pipe();
  return {.read = Fd(master), .write = Fd(slave)};
}

struct Source {
  int fd;
  Stream stream;

  /// @return  false: there is nothing now
  bool pass_on(int rank) {
    std::array<char, 1 << 16> part{};
    const ssize_t n = fd < 0 ? 0 : read(fd, part.data(), part.size());
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) fd = -1;  // closed by all; of a terminal: EIO
    const std::string frames = n > 0 ? framed(rank, stream, {part.data(), static_cast<size_t>(n)}) : "";
    for (size_t at = 0; at < frames.size(); at += kFramesAtOnce)
      write_all(STDERR_FILENO, std::string_view(frames).substr(at, kFramesAtOnce));
    return n > 0;
  }
};

/// Open MPI 5 ends the job as soon as a rank fails, and forgets what it has not read of that rank, or not passed on yet.
void let_be_passed_on() {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + 1s;
  for (int unread = 0; ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0 && Clock::now() < end;)
    std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);
}

/// Ends as the program has ended.
[[noreturn]] void end_like(int status) {
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(WTERMSIG(status), SIG_DFL);
  std::raise(WTERMSIG(status));
  _exit(128 + WTERMSIG(status));
}

/// The program and what it has started: mpirun makes each rank a process group.
void kill_program(pid_t program) { kill(getpgrp() == getpid() ? 0 : program, SIGKILL); }

[[noreturn]] void forward(pid_t program, int rank, std::array<Source, 2> sources) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE})
    std::signal(number, SIG_IGN);  // mpirun sends them to the group, to the program too
  if (const int nothing = open("/dev/null", O_RDONLY); nothing > STDIN_FILENO)
    dup2(nothing, STDIN_FILENO), close(nothing);  // standard input is the program's
  for (const Source& source : sources) fcntl(source.fd, F_SETFL, fcntl(source.fd, F_GETFL) | O_NONBLOCK);
  const pid_t daemon = getppid();
  const auto ended = static_cast<int>(syscall(SYS_pidfd_open, program, 0));
  constexpr int kOftenMs = 50;  // where there are no pidfds
  int reader = STDERR_FILENO;
  for (int status = 0;;) {
    std::array<pollfd, 4> waits{{{sources[0].fd, POLLIN, 0}, {sources[1].fd, POLLIN, 0}, {ended, POLLIN, 0}, {reader, 0, 0}}};
    poll(waits.data(), waits.size(), ended < 0 ? kOftenMs : -1);
    for (size_t i = 0; i < sources.size(); ++i)
      if (waits[i].revents) sources[i].pass_on(rank);
    if (waits[3].revents) {
      reader = -1;
      if (getppid() != daemon) kill_program(program);
    }
    if (waitpid(program, &status, WNOHANG) != program) continue;
    for (Source& source : sources) {  // what it has written; a child that goes on writing is not waited for
      constexpr int kMostReads = 32;  // more than a pipe holds
      for (int reads = 0; reads < kMostReads && source.pass_on(rank);) ++reads;
    }
    if (status != 0) let_be_passed_on();
    end_like(status);
  }
}

}  // namespace

void forward_output(int rank) {
  Ends out = open_terminal(), err = open_pipe();
  const pid_t self = getpid(), child = fork();
  if (child < 0) throw SystemError(fmt::format("fork: {}", std::strerror(errno)));
  if (child > 0) {
    out.write.reset();
    err.write.reset();
    forward(child, rank, {Source{out.read.get(), Stream::kOut}, Source{err.read.get(), Stream::kErr}});
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != self) _exit(1);
  dup2(out.write.get(), STDOUT_FILENO);
  dup2(err.write.get(), STDERR_FILENO);
}

}  // namespace tutti::launcher
