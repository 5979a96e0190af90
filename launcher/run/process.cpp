#include "run/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "core/handle.h"

namespace tutti::launcher {
using namespace detail;

int become(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int code = errno == ENOENT ? 127 : 126;
  fmt::print(stderr, "tutti: {}: {}\n", words[0], std::strerror(errno));
  return code;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

bool ask_apart(std::chrono::milliseconds patience, std::string& answer, const std::function<void(int to)>& ask) {
  using Clock = std::chrono::steady_clock;
  std::signal(SIGCHLD, SIG_DFL);  // ignored, children go without a word
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (const Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
        nothing)  // what hangs must not keep who reads our output waiting
      for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing.get(), stream);
    try {
      ask(to.get());
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  to.reset();
  bool has_ended = false;
  const auto until = Clock::now() + patience;
  while (!has_ended) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd waits{from.get(), POLLIN, 0};
    const int ready = left > 0 ? poll(&waits, 1, static_cast<int>(left)) : 0;
    if (ready == 0) break;
    std::array<char, 4096> part{};
    const ssize_t n = ready < 0 ? -1 : read(from.get(), part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n > 0) answer.append(part.data(), static_cast<size_t>(n));
    has_ended = n <= 0;
  }
  int status = -1;
  while (has_ended && waitpid(child, &status, WNOHANG) == 0 && Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (status != -1) return status == 0;
  kill(child, SIGKILL);
  waitpid(child, &status, WNOHANG);  // it may hang in the kernel
  return false;
}

}  // namespace tutti::launcher
