#include "control/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "control/controller.h"

namespace tutti {
namespace {

int wake_pipe[2] = {-1, -1};

void on_signal(int) {
  const int saved = errno;
  if (wake_pipe[1] >= 0) [[maybe_unused]] const auto written = write(wake_pipe[1], "", 1);
  errno = saved;
}

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

void watch_signals(bool is_controller) {
  if (is_controller && wake_pipe[0] < 0 && pipe2(wake_pipe, O_CLOEXEC) == 0)
    std::thread([] {  // for the life of the process
      char byte;
      while (read(wake_pipe[0], &byte, 1) > 0) detail::Controller::report_all("SIGUSR2");
    }).detach();
  install(SIGUSR1, nothing);
  install(SIGUSR2, is_controller ? on_signal : nothing);
}

}  // namespace tutti
