#pragma once

#include <string>

#include "run/command.h"

namespace tutti::launcher {

struct Outcome {
  int code = 0;      ///< of the launcher, which is the program's; 128 + signal
  int asked_by = 0;  ///< signal that has asked for the end: SIGINT, SIGTERM, SIGHUP; 0: none
  bool timed_out = false;
  bool has_lost_output = false;  ///< `code` is 1 for that; the program's was 0
  int launcher = 0;              ///< its process, while it ran
};

/// Starts the launcher, passes signals and output on, and waits. Nothing of it is left afterwards.  @throws SystemError
/// @param captured  gets the output in place of this program's standard streams (with options.shows_captured: too), of more than
/// 3 MiB the begin and
///   the end; not with options.raw
Outcome run_job(const Command& command, const RunOptions& options, std::string* captured = nullptr);

}  // namespace tutti::launcher
