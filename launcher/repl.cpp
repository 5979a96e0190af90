// tutti repl
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "commands.h"
#include "run/command.h"
#include "run/process.h"
#include "run/terminal.h"
#include "tutti/error.h"

namespace {

struct ReplOptions {
  int ranks = 0;
  std::string python = "python3";
  std::vector<std::string> mpirun;  // options of its
};

volatile pid_t mpirun_pid = 0;

/// mpirun's standard input is no terminal to its ranks, and Ctrl-C ends it. So rank 0 opens this terminal and takes its
/// foreground.
int repl(const ReplOptions& options) {
  if (!isatty(STDIN_FILENO))
    throw tutti::UsageError("repl: standard input is no terminal; scripts are started by mpirun -n N python3 -m tutti script.py");
  const std::string terminal = tutti::launcher::terminal_name();
  if (terminal.empty()) throw tutti::UsageError("repl: in the background; it takes the terminal, start it in the foreground");
  setenv("TUTTI_TTY", terminal.c_str(), 1);
  for (const auto& [name, value] : tutti::launcher::mpirun_variables()) setenv(name.c_str(), value.c_str(), 0);
  std::vector<std::string> command{"mpirun", "-n", std::to_string(options.ranks), "-x", "TUTTI_TTY"};
  command.insert(command.end(), options.mpirun.begin(), options.mpirun.end());
  command.insert(command.end(), {options.python, "-m", "tutti"});

  const tutti::launcher::LentTerminal lent;
  const pid_t child = fork();
  if (child < 0) throw tutti::SystemError(fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    std::signal(SIGTTOU, SIG_DFL);
    if (const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC); nothing >= 0) dup2(nothing, STDIN_FILENO);
    _exit(tutti::launcher::become(command));
  }
  mpirun_pid = child;
  for (int number : {SIGTERM, SIGHUP, SIGINT}) std::signal(number, [](int received) { kill(mpirun_pid, received); });
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

void tutti::launcher::add_repl(CLI::App& app, int& code) {
  auto* command = app.add_subcommand("repl", "Python with a session on ranks of mpirun, rank 0 on this terminal");
  const auto options = std::make_shared<ReplOptions>();
  command->add_option("-n,--ranks", options->ranks, "ranks")->required()->check(CLI::Range(1, 1 << 20));
  command->add_option("--python", options->python, "the interpreter")->capture_default_str();
  command->add_option("MPIRUN_OPTIONS", options->mpirun, "after --: options for mpirun, such as --host");
  command->callback([options, &code] { code = repl(*options); });
}
