#include "control/watch/source_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>

#include "control/segment/segment.h"
#include "core/handle.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kAnswersWithin = 400ms, kAllAnswerWithin = 1000ms;

/// Of faulthandler's `  File "train.py", line 31 in step`, the innermost first: "train.py:31 in step". Empty: not written yet.
std::string first_line(std::string_view stack) {
  constexpr std::string_view kBefore = "  File \"", kBetween = "\", line ";
  const size_t begin = stack.find(kBefore);
  if (begin == std::string_view::npos) return {};
  stack.remove_prefix(begin + kBefore.size());
  const size_t end = stack.find('\n'), file = stack.find(kBetween);
  if (end == std::string_view::npos || file == std::string_view::npos || file > end) return {};
  return fmt::format("{}:{}", stack.substr(0, file), stack.substr(file + kBetween.size(), end - file - kBetween.size()));
}

/// Whether the thread has the signal in this set of /proc's: "SigBlk", as long as its handler runs; "SigPnd", before that.
bool has_signal(const std::string& status_file, std::string_view set, int number) {
  std::ifstream status(status_file);
  for (std::string name, value; status >> name && std::getline(status, value);)
    if (name.starts_with(set)) return (std::strtoull(value.c_str(), nullptr, 16) >> (number - 1) & 1) != 0;
  return false;
}

/// Empty: no interpreter, or no answer. A process has one file for all its threads: the next is asked when this one has written
/// all.
std::string source_line(Segment& segment, int worker, Clock::time_point until) {
  const StackSignal signal = segment.slot(worker).stack_signal.load();
  const auto pid = segment.pid_here(worker);
  const auto thread = static_cast<pid_t>(segment.slot(worker).thread.load());
  if (signal.number == 0 || !pid || *pid == 0) return {};
  static auto& one_at_a_time = *new std::mutex;
  const std::lock_guard lock(one_at_a_time);
  const Fd file(open(fmt::format("/proc/{}/fd/{}", *pid, signal.fd).c_str(), O_RDWR | O_CLOEXEC));
  const std::string status = fmt::format("/proc/{}/task/{}/status", *pid, thread);
  if (file.get() < 0 || has_signal(status, "SigPnd", signal.number) || ftruncate(file.get(), 0) != 0) return {};
  if (syscall(SYS_tgkill, *pid, thread, signal.number) != 0) return {};
  for (; Clock::now() < until; std::this_thread::sleep_for(200us)) {
    char stack[4096];
    const ssize_t n = pread(file.get(), stack, sizeof stack, 0);
    std::string line = first_line({stack, static_cast<size_t>(std::max<ssize_t>(n, 0))});
    if (!line.empty() && !has_signal(status, "SigBlk", signal.number)) return line;
  }
  return {};
}

}  // namespace

void add_source_lines(std::span<WorkerState> states, Segment& segment) {
  const auto end = Clock::now() + kAllAnswerWithin;
  for (WorkerState& state : states)
    if (state.kind != WorkerState::Kind::kIdle && segment.has(state.worker))
      state.line = source_line(segment, state.worker, std::min(Clock::now() + kAnswersWithin, end));
}

}  // namespace tutti::detail
