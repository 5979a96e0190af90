// tutti run
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>

#include "commands.h"
#include "run/job.h"

namespace {

using namespace tutti::launcher;

/// Exit codes that another try would not change: the program is told to end, or was not set up.
bool is_final(int code) {
  constexpr int kPreempted = 75, kSetUpError = 99, kNotExecutable = 126, kNotFound = 127;
  return code == 0 || code == kPreempted || code == kSetUpError || code == kNotExecutable || code == kNotFound;
}

int run(const RunOptions& options) {
  const Command command = make_command(options, this_site());
  if (options.dry_run) {
    std::cout << as_shell(command) << '\n';
    return 0;
  }
  for (int restarts = 0;; ++restarts) {
    if (options.max_restarts > 0) setenv("TUTTI_RESTART_COUNT", std::to_string(restarts).c_str(), 1);
    const Outcome outcome = run_job(command, options);
    if (restarts == options.max_restarts || outcome.was_asked || is_final(outcome.code)) return outcome.code;
    fmt::print(stderr, "tutti: the job has ended with {}; restart {} of {}\n", outcome.code, restarts + 1, options.max_restarts);
  }
}

}  // namespace

void tutti::launcher::add_run(CLI::App& app, int& code) {
  auto* command = app.add_subcommand("run", "starts a program on ranks: by srun inside a Slurm allocation, else by mpirun. Its exit code is the program's");
  const auto options = std::make_shared<RunOptions>();
  command->add_option("-n,--ranks", options->ranks, "ranks")->required()->check(CLI::Range(1, 1 << 20));
  command->add_option("--hosts", options->hosts, "where to: a,b,c; mpirun's a:4 gives slots")->delimiter(',');
  const std::map<std::string, Launcher> launchers{{"auto", Launcher::kAuto}, {"mpirun", Launcher::kMpirun}, {"srun", Launcher::kSrun}};
  command->add_option("--launcher", options->launcher, "auto, mpirun or srun")->transform(CLI::CheckedTransformer(launchers))->default_str("auto");
  command->add_option("-L,--launcher-option", options->launcher_options, "handed to it, one word each: -L --bind-to -L none")->type_size(1)->allow_extra_args(false);
  command->add_option("--bind", options->bind, "start each rank by `tutti bind`: gpu or cores; tutti's own programs do so by themselves")->check(CLI::IsMember({"gpu", "cores"}));
  command->add_flag("--raw", options->raw, "leave output as it comes; else each line has its rank in front (mpirun loses parts of floods of lines below 16 bytes then)");
  command->add_option("--log-dir", options->log_folder, "a folder for what each rank writes, too: rank-3.out, rank-3.err")->excludes("--raw");
  command->add_flag("--valgrind", options->valgrind, "each rank under valgrind");
  command->add_option("--timeout", options->timeout_s, "seconds; then the ranks say what they do (tutti's programs), and are ended: exit code 124")->check(CLI::PositiveNumber);
  command->add_option("--max-restarts", options->max_restarts, "start a job that failed again, so often; TUTTI_RESTART_COUNT tells it")->check(CLI::Range(0, 1 << 20));
  command->add_flag("--dry-run", options->dry_run, "print the command and do nothing");
  command->add_option("PROGRAM", options->program, "after --: the program and its arguments")->required();
  command->callback([options, &code] { code = ::run(*options); });
}
