#include "run/forward.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/handle.h"
#include "run/lines.h"
#include "run/process.h"
#include "tutti/error.h"

namespace tutti::launcher {
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

/// A stream of the program's, to one of the launcher's.
struct Stream {
  int from, to;
  LineMarker marker;

  /// @return  false: there is nothing now
  bool pass_on() {
    std::array<char, 1 << 16> part{};
    const ssize_t n = from < 0 ? 0 : read(from, part.data(), part.size());
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && errno == EAGAIN) return false;
    if (n > 0) write_all(to, marker.feed({part.data(), static_cast<size_t>(n)}));
    else from = -1;  // closed by all; of a terminal: EIO
    return n > 0;
  }
};

/// Ends as the program has ended.
[[noreturn]] void end_like(int status) {
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(WTERMSIG(status), SIG_DFL);
  std::raise(WTERMSIG(status));
  _exit(128 + WTERMSIG(status));
}

[[noreturn]] void forward(pid_t program, std::array<Stream, 2> streams) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) std::signal(number, SIG_IGN);  // mpirun sends them to the group, to the program too
  if (const int nothing = open("/dev/null", O_RDONLY); nothing > STDIN_FILENO) dup2(nothing, STDIN_FILENO), close(nothing);  // standard input is the program's
  for (const Stream& stream : streams) fcntl(stream.from, F_SETFL, fcntl(stream.from, F_GETFL) | O_NONBLOCK);
  const auto ended = static_cast<int>(syscall(SYS_pidfd_open, program, 0));
  constexpr int kOftenMs = 50;  // where there are no pidfds
  constexpr int kSilenceMs = 200;  // then what has no newline yet is passed on: it may be the last that is heard of this rank
  for (int status = 0;;) {
    std::array<pollfd, 3> waits{{{streams[0].from, POLLIN, 0}, {streams[1].from, POLLIN, 0}, {ended, POLLIN, 0}}};
    const bool has_begun = streams[0].marker.has_begun() || streams[1].marker.has_begun();
    const int ready = poll(waits.data(), waits.size(), ended < 0 ? kOftenMs : has_begun ? kSilenceMs : -1);
    for (size_t i = 0; i < streams.size(); ++i)
      if (waits[i].revents) streams[i].pass_on();
      else if (ready == 0) write_all(streams[i].to, streams[i].marker.begun());
    if (waitpid(program, &status, WNOHANG) != program) continue;
    for (Stream& stream : streams) {  // what it has written; a child that goes on writing is not waited for
      constexpr int kMostReads = 32;  // more than a pipe holds
      for (int reads = 0; reads < kMostReads && stream.pass_on();) ++reads;
      write_all(stream.to, stream.marker.finish());
    }
    end_like(status);
  }
}

}  // namespace

void forward_lines() {
  Ends out = open_terminal(), err = open_pipe();
  const pid_t self = getpid(), child = fork();
  if (child < 0) throw SystemError(fmt::format("fork: {}", std::strerror(errno)));
  if (child > 0) {
    out.write.reset();
    err.write.reset();
    forward(child, {Stream{out.read.get(), STDOUT_FILENO, {}}, Stream{err.read.get(), STDERR_FILENO, {}}});
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != self) _exit(1);
  dup2(out.write.get(), STDOUT_FILENO);
  dup2(err.write.get(), STDERR_FILENO);
}

}  // namespace tutti::launcher
