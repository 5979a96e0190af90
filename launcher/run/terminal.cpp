#include "run/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace tutti::launcher {

std::string terminal_name() {
  const char* name = isatty(STDIN_FILENO) ? ttyname(STDIN_FILENO) : nullptr;
  return name && tcgetpgrp(STDIN_FILENO) == getpgrp() ? name : "";
}

LentTerminal::LentTerminal() {
  tcgetattr(STDIN_FILENO, &modes_);
  std::signal(SIGTTOU, SIG_IGN);  // for the end, when we are in the background
}

LentTerminal::~LentTerminal() {
  tcsetpgrp(STDIN_FILENO, getpgrp());
  tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_);  // who was killed at a prompt has left them as readline wants them
}

std::string take_terminal(const std::string& name) {
  const int terminal = open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (terminal < 0) return std::strerror(errno);
  const auto before = std::signal(SIGTTOU, SIG_IGN);
  const int taken = tcsetpgrp(terminal, getpgrp());
  const std::string why = taken == 0 ? "" : std::strerror(errno);
  std::signal(SIGTTOU, before);
  if (taken == 0)
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(terminal, stream);
  close(terminal);
  return why;
}

}  // namespace tutti::launcher
