#include "core/signals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "core/env.h"
#include "core/handle.h"
#include "core/settings.h"

namespace tutti::detail {
namespace {

int wake_pipe[2] = {-1, -1};

void on_signal(int) {
  const int saved = errno;
  if (wake_pipe[1] >= 0) [[maybe_unused]]
    const auto written = write(wake_pipe[1], "", 1);
  errno = saved;
}

std::atomic<bool> is_preempted{false};
static_assert(std::atomic<bool>::is_always_lock_free);
void on_preemption(int) { is_preempted.store(true, std::memory_order_relaxed); }

void nothing(int) {}  // not SIG_IGN, which programs that a worker starts would inherit

void install(int signal, void (*handler)(int)) {
  struct sigaction now {};
  if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction ours {};
  ours.sa_handler = handler;
  ours.sa_flags = SA_RESTART;
  sigaction(signal, &ours, nullptr);
}

}  // namespace

void watch_signals(bool is_rank) {
  const std::string& name = settings().preempt_signal;
  if (name != "USR1" && name != "TERM") throw SetUpError(fmt::format("TUTTI_PREEMPT_SIGNAL='{}': expected USR1 or TERM", name));
  install(name == "TERM" ? SIGTERM : SIGUSR1, on_preemption);
  install(SIGUSR1, nothing);  // unless it is the one
  install(SIGUSR2, on_signal);
  if (is_rank) install(SIGPIPE, nothing);
}

void leave_interrupts_to_controller() {
  install(SIGINT, nothing);
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  pthread_sigmask(SIG_UNBLOCK, &interrupts, nullptr);
}

void report_on_signal(void (*report)(std::string_view why)) {
  int ends[2];
  if (wake_pipe[0] >= 0 || pipe2(ends, O_CLOEXEC) != 0) return;
  for (int i = 0; i < 2; ++i) wake_pipe[i] = Fd(ends[i]).release();
  std::thread([report] {  // for the life of the process
    char byte;
    while (read(wake_pipe[0], &byte, 1) > 0) report("SIGUSR2");
  })
      .detach();
}

bool preemption_is_asked_for() { return is_preempted.load(std::memory_order_relaxed); }

}  // namespace tutti::detail
