#pragma once

#include "run/command.h"

namespace tutti::launcher {

struct Outcome {
  int code = 0;           ///< of the launcher, which is the program's; 128 + signal
  bool was_asked = false; ///< to end: Ctrl-C, a signal, the time limit
};

/// Starts the launcher, passes signals and output on, and waits. Nothing of it is left afterwards.  @throws SystemError
Outcome run_job(const Command& command, const RunOptions& options);

}  // namespace tutti::launcher
