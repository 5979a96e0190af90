#pragma once

#include <string>

#include "run/options.h"

namespace CLI {
class App;
}

namespace tutti::launcher {

void add_job_options(CLI::App& command,
                     RunOptions& options);  ///< that every command which starts ranks has: where, by what, bound how

std::string check_seconds(const std::string& text);  ///< for CLI::Option::check: a time above 0, below decades

}  // namespace tutti::launcher
