// What `tutti run` starts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "run/options.h"

namespace tutti::launcher {

/// What is there to start ranks with.
struct Site {
  bool has_mpirun = false, has_srun = false;
  bool in_allocation = false;       ///< of Slurm's
  std::string srun_mpi;             ///< what `srun --mpi=list` says
  std::string tutti = "tutti";      ///< this program
};
Site this_site();

struct Command {
  Launcher by = Launcher::kMpirun;  ///< never kAuto
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> variables;  ///< set unless the user has
};

/// srun inside an allocation if it can start Open MPI's ranks (PMIx), else mpirun.  @throws UsageError  neither can be
Command make_command(const RunOptions& options, const Site& site);
std::string as_shell(const Command& command);  ///< to be pasted into a shell

}  // namespace tutti::launcher
