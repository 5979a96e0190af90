#pragma once

#include <string>
#include <vector>

namespace tutti::launcher {

enum class Launcher { kAuto, kMpirun, kSrun };

struct RunOptions {
  int ranks = 0;
  Launcher launcher = Launcher::kAuto;
  std::vector<std::string> hosts;
  std::vector<std::string> launcher_options;  ///< handed through
  std::vector<std::string> exported;          ///< variables that ranks on other hosts get, too; srun's get all
  std::string bind;                           ///< --bind of `tutti bind`; empty: the launcher's own binding
  bool shows_captured = false;                ///< output that is captured is written as well
  bool raw = false;                           ///< output as the launcher leaves it
  bool plain = false;   ///< nobody looks on: the ranks' programs are told to write no colours, though they see a terminal
  bool crowds = false;  ///< Slurm's CPUs may have other work, too
  std::string log_folder;
  bool keeps_logs = false;  ///< of an earlier start; else they begin anew
  bool valgrind = false;
  int gdb = -1;          ///< a rank
  std::string terminal;  ///< that this rank gets; empty: none
  double timeout_s = 0;  ///< 0: none
  int max_restarts = 0;
  bool dry_run = false;
  std::vector<std::string> program;
};

}  // namespace tutti::launcher
