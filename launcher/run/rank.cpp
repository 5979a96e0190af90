// tutti rank: what `tutti run` starts on each rank, and what then becomes the program.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "commands.h"
#include "core/env.h"
#include "run/forward.h"
#include "run/process.h"
#include "run/terminal.h"

namespace {

struct RankOptions {
  int gdb = -1;
  bool frames = false, plain = false;
  std::string colon;  // what stands for ":"
  std::vector<std::string> program;
};

/// Open MPI's variable before PMIx's before MPICH's before Slurm's: under mpirun inside Slurm, Slurm's is the daemon's.
int this_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (tutti::detail::env_string(name)) return static_cast<int>(tutti::detail::env_int(name, 0, 0, 1 << 30));
  return 0;
}

int become_program(const RankOptions& options) {
  if (options.frames) tutti::launcher::forward_output(this_rank());
  if (options.plain) setenv("TERM", "dumb", 1), setenv("NO_COLOR", "1", 0);
  std::vector<std::string> words = options.program;
  if (!options.colon.empty()) std::replace(words.begin(), words.end(), options.colon, std::string(":"));
  if (this_rank() == options.gdb) {
    std::vector<std::string> gdb{"gdb", "-quiet", "-ex", "handle SIGUSR1 SIGUSR2 nostop noprint pass"};
    if (const auto terminal = tutti::detail::env_string("TUTTI_TTY")) {
      if (const std::string why = tutti::launcher::take_terminal(*terminal); !why.empty()) {
        fmt::print(stderr,
                   "tutti: rank {} can't use the terminal {} ({}); it must run on the host, and in the login, of tutti run. With "
                   "standard input from /dev/null gdb runs the program and prints where it "
                   "has failed\n",
                   options.gdb, *terminal, why);
        return 1;
      }
    } else {
      gdb.insert(gdb.end(), {"-batch", "-ex", "run", "-ex", "backtrace", "-ex",
                             "quit $_isvoid($_exitcode) ? 128 + $_siginfo.si_signo : $_exitcode"});
    }
    gdb.emplace_back("--args");
    words.insert(words.begin(), gdb.begin(), gdb.end());
  }
  if (options.gdb >= 0) unsetenv("TUTTI_TTY");
  return tutti::launcher::become(std::move(words));
}

}  // namespace

void tutti::launcher::add_rank(CLI::App& app, int& code) {
  auto* command = app.add_subcommand("rank", "for tutti run")->group("");
  const auto options = std::make_shared<RankOptions>();
  command->add_flag("--frames", options->frames);
  command->add_flag("--plain", options->plain);
  command->add_option("--gdb", options->gdb);
  command->add_option("--colon", options->colon);
  command->add_option("PROGRAM", options->program)->required();
  command->callback([options, &code] {
    options->program = program_of(options->program);
    code = become_program(*options);
  });
}
