#include "core/log.h"

#include <unistd.h>

#include <string>

#include "core/env.h"
#include "core/settings.h"

namespace tutti::detail {
namespace {

constexpr std::string_view kLevelNames[] = {"error", "warn", "info", "debug"};

LogLevel configured_level() {
  const std::string name = settings().log;
  for (int i = 0; i < 4; ++i)
    if (kLevelNames[i] == name) return static_cast<LogLevel>(i);
  return LogLevel::kWarn;
}

}  // namespace

bool log_enabled(LogLevel level) {
  static const LogLevel configured = configured_level();
  return level <= configured;
}

void log_line(LogLevel level, std::string_view text) noexcept try {
  const std::string line =
      fmt::format("[tutti {} {} pid {}] {}\n", kLevelNames[static_cast<int>(level)], host_name(), getpid(), text);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
} catch (...) {
}

}  // namespace tutti::detail
