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
  std::string bind;                           ///< policy of `tutti bind`; empty: the launcher's own binding
  bool raw = false;                           ///< output as the launcher leaves it
  std::string log_folder;
  bool valgrind = false;
  double timeout_s = 0;  ///< 0: none
  int max_restarts = 0;
  bool dry_run = false;
  std::vector<std::string> program;
};

}  // namespace tutti::launcher
