#pragma once

#include <fmt/format.h>

#include <exception>
#include <string_view>

namespace tutti::detail {

enum class LogLevel { kError, kWarn, kInfo, kDebug };

bool log_enabled(LogLevel level);                               ///< TUTTI_LOG=error|warn|info|debug, default warn
void log_line(LogLevel level, std::string_view text) noexcept;  ///< one write(2) to stderr, prefixed with host and pid

template <class... A>
void log(LogLevel level, fmt::format_string<A...> format, A&&... args) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_line(level, fmt::format(format, std::forward<A>(args)...));
  } catch (const std::exception&) {
    log_line(level, "no memory for a message");
  }
}

}  // namespace tutti::detail
