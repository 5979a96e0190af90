// What `tutti run` starts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/options.h"

namespace tutti::launcher {

/// What is there to start ranks with.
struct Site {
  bool has_mpirun = false, has_srun = false;
  bool has_prrte = false;       ///< mpirun is Open MPI's 5 or later
  bool has_cluster = false;     ///< srun knows one: this may be its login node
  bool in_allocation = false;   ///< of Slurm's
  bool in_step = false;         ///< of Slurm's: `srun --pty bash`
  bool is_bound = false;        ///< this process, to fewer CPUs than the machine, or its control group, has
  int components = 1;           ///< of a heterogeneous allocation
  int tasks = 0;                ///< that the allocation has CPUs for
  std::string cpus_per_task;    ///< of the allocation, if asked for
  int gpus_per_node = 0;        ///< of the allocation, if asked for by --gpus-per-task or --gpus
  std::string srun_mpi;         ///< what `srun --mpi=list` says
  std::string tutti = "tutti";  ///< this program
};
std::string this_program();  ///< the file of `tutti` that runs
Site this_site();
bool has_pmix(const Site& site);                    ///< srun can start Open MPI's ranks
std::string output_of(const std::string& command);  ///< of the shell's

struct Command {
  Launcher by = Launcher::kMpirun;  ///< never kAuto
  bool by_prrte = false;            ///< its mpirun is Open MPI's 5 or later
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> variables;  ///< set unless the user has
};

/// What mpirun needs to start as root, and more ranks than cores.
std::vector<std::pair<std::string, std::string>> mpirun_variables();
/// srun inside an allocation if it can start Open MPI's ranks (PMIx), else mpirun.  @throws UsageError  neither can be
Command make_command(const RunOptions& options, const Site& site);
/// Why the program can't be started, as a shell's exit code: 127 if there is none, 126 if it can't be executed; else 0. What runs
/// on other hosts only they know.
int why_not_startable(const RunOptions& options);
std::string as_shell(const Command& command);  ///< to be pasted into a shell

}  // namespace tutti::launcher
