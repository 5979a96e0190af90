// tutti repl
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "commands.h"
#include "tutti/error.h"

namespace {

struct Options {
  int ranks = 0;
  std::string python = "python3";
  std::vector<std::string> mpirun;  // options of its
};

volatile pid_t mpirun_pid = 0;

/// mpirun's standard input is no terminal to its ranks, and Ctrl-C ends it. So rank 0 opens this terminal and takes its foreground.
int repl(const Options& options) {
  const char* terminal = isatty(STDIN_FILENO) ? ttyname(STDIN_FILENO) : nullptr;
  if (!terminal) throw tutti::UsageError("repl: standard input is no terminal; scripts are started by mpirun -n N python3 -m tutti script.py");
  if (tcgetpgrp(STDIN_FILENO) != getpgrp()) throw tutti::UsageError("repl: in the background; it takes the terminal, start it in the foreground");
  termios modes{};
  tcgetattr(STDIN_FILENO, &modes);
  setenv("TUTTI_TTY", terminal, 1);
  for (const char* allowed : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"}) setenv(allowed, "1", 0);
  std::vector<std::string> command{"mpirun", "-n", std::to_string(options.ranks), "-x", "TUTTI_TTY"};
  command.insert(command.end(), options.mpirun.begin(), options.mpirun.end());
  command.insert(command.end(), {options.python, "-m", "tutti"});

  std::signal(SIGTTOU, SIG_IGN);  // for the end, when we are in the background
  const pid_t child = fork();
  if (child < 0) throw tutti::SystemError(fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    std::signal(SIGTTOU, SIG_DFL);
    if (const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC); nothing >= 0) dup2(nothing, STDIN_FILENO);
    std::vector<char*> argv;
    for (std::string& argument : command) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    fmt::print(stderr, "tutti: {}: {}; it belongs to Open MPI\n", command[0], std::strerror(errno));
    _exit(127);
  }
  mpirun_pid = child;
  for (int number : {SIGTERM, SIGHUP, SIGINT}) std::signal(number, [](int received) { kill(mpirun_pid, received); });
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  tcsetpgrp(STDIN_FILENO, getpgrp());
  tcsetattr(STDIN_FILENO, TCSADRAIN, &modes);  // a rank that was killed at the prompt has left them as readline wants them
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

void tutti::launcher::add_repl(CLI::App& app, int& code) {
  auto* command = app.add_subcommand("repl", "Python with a session on ranks of mpirun, rank 0 on this terminal");
  const auto options = std::make_shared<Options>();
  command->add_option("-n,--ranks", options->ranks, "ranks")->required()->check(CLI::Range(1, 1 << 20));
  command->add_option("--python", options->python, "the interpreter")->capture_default_str();
  command->add_option("MPIRUN_OPTIONS", options->mpirun, "after --: options for mpirun, such as --host");
  command->callback([options, &code] { code = repl(*options); });
}
