// tutti run
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "commands.h"
#include "run/job.h"
#include "run/run_options.h"
#include "run/terminal.h"
#include "tutti/error.h"

namespace {

using namespace tutti::launcher;

/// Exit codes that another try would not change: the program is told to end, or was not set up.
bool is_final(int code) {
  constexpr int kPreempted = 75, kSetUpError = 99, kNotExecutable = 126, kNotFound = 127;
  return code == 0 || code == kPreempted || code == kSetUpError || code == kNotExecutable || code == kNotFound;
}

int run(RunOptions options) {
  if (options.max_restarts > 0) options.exported.emplace_back("TUTTI_RESTART_COUNT");
  if (options.gdb >= options.ranks)
    throw tutti::UsageError(fmt::format("run: --gdb {}: the ranks are 0 to {}", options.gdb, options.ranks - 1));
  if (options.gdb >= 0 && !(options.terminal = terminal_name()).empty()) {
    setenv("TUTTI_TTY", options.terminal.c_str(), 1);
    options.exported.emplace_back("TUTTI_TTY");
  }
  options.plain = isatty(STDOUT_FILENO) == 0;
  const Site site = this_site();
  const Command command = make_command(options, site);
  if (const auto cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); site.has_cluster && !site.in_allocation &&
                                                                         options.launcher == Launcher::kAuto &&
                                                                         options.hosts.empty() && options.ranks > cpus)
    fmt::print(stderr,
               "tutti: no allocation of Slurm's here: all {} ranks run on this host, which has {} CPUs; salloc or sbatch first "
               "(`tutti script`), or --launcher mpirun if that is meant\n",
               options.ranks, cpus);
  if (options.dry_run) {
    std::cout << as_shell(command) << '\n';
    return 0;
  }
  if (const int code = why_not_startable(options)) {
    fmt::print(stderr, "tutti: {}: {}\n", options.program[0], code == 126 ? "it can't be executed" : "there is no such program");
    return code;
  }
  for (int restarts = 0;; ++restarts) {
    if (options.max_restarts > 0) setenv("TUTTI_RESTART_COUNT", std::to_string(restarts).c_str(), 1);
    options.keeps_logs = restarts > 0;
    const Outcome outcome = run_job(command, options);
    if (restarts == options.max_restarts || outcome.asked_by != 0 || outcome.timed_out || outcome.has_lost_output ||
        is_final(outcome.code))
      return outcome.code;
    fmt::print(stderr, "tutti: the job has ended with {}; restart {} of {}\n", outcome.code, restarts + 1, options.max_restarts);
  }
}

}  // namespace

void tutti::launcher::add_job_options(CLI::App& command, RunOptions& options) {
  command.add_option("--hosts", options.hosts, "where to: a,b,c; mpirun's a:4 gives slots")
      ->delimiter(',')
      ->type_size(1)
      ->allow_extra_args(false)
      ->each([](const std::string& host) {
        if (host.empty())
          throw CLI::ValidationError("--hosts", "a host without a name; is the variable that should have them set?");
      });
  const auto choose = [&options](const std::string& word) {
    options.launcher = word == "srun" ? Launcher::kSrun : word == "mpirun" ? Launcher::kMpirun : Launcher::kAuto;
  };
  command
      .add_option_function<std::string>("--launcher", choose,
                                        "what starts the ranks; auto: srun inside an allocation, else mpirun")
      ->check(CLI::IsMember({"auto", "mpirun", "srun"}))
      ->option_text("auto|mpirun|srun");
  command.add_option("-L,--launcher-option", options.launcher_options, "handed to it, one word each: -L --bind-to -L none")
      ->type_size(1)
      ->allow_extra_args(false);
  add_binding(command, options.bind,
              "start each rank by `tutti bind`; tutti's own programs bind themselves, but leave CUDA_VISIBLE_DEVICES alone");
}

std::string tutti::launcher::check_seconds(const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  constexpr double kMost = 1e9;
  return !text.empty() && *end == '\0' && seconds > 0 && seconds <= kMost
             ? ""
             : fmt::format("'{}': expected a number of seconds above 0, at most {}", text, kMost);
}

void tutti::launcher::add_run(CLI::App& app, int& code) {
  auto* command = app.add_subcommand(
      "run", "starts a program on ranks: by srun inside a Slurm allocation, else by mpirun. Its exit code is the program's");
  const auto options = std::make_shared<RunOptions>();
  command->add_option("-n,--ranks", options->ranks, "ranks")->required()->check(CLI::Range(1, 1 << 20));
  add_job_options(*command, *options);
  command->add_flag("--raw", options->raw, "leave output as it comes; else each line has its rank in front");
  command->add_option("--log-dir", options->log_folder, "a folder for what each rank writes, too: rank-3.out, rank-3.err")
      ->excludes("--raw");
  command->add_flag("--valgrind", options->valgrind, "each rank under valgrind");
  command
      ->add_option("--gdb", options->gdb,
                   "this rank under gdb, on your terminal; without a terminal gdb prints where it has failed")
      ->check(CLI::NonNegativeNumber)
      ->excludes("--valgrind");
  command
      ->add_option("--timeout", options->timeout_s,
                   "seconds; then you are told where each rank stands, tutti's programs say what they do, and the job is ended: "
                   "exit code 124")
      ->check(check_seconds);
  command
      ->add_option("--max-restarts", options->max_restarts,
                   "start a job that failed again, so often; TUTTI_RESTART_COUNT tells it")
      ->check(CLI::Range(0, 1 << 20));
  command->add_flag("--dry-run", options->dry_run,
                    "print the command, for mpirun without what brings the ranks' output in lines, and do nothing");
  command->add_option("PROGRAM", options->program, "after --: the program and its arguments")->required();
  command->callback([options, &code] {
    options->program = program_of(options->program);
    code = ::run(*options);
  });
}
