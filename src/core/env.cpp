#include "core/env.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

namespace tutti::detail {

std::optional<std::string> env_string(const char* name) {
  const char* text = std::getenv(name);
  return text && *text ? std::optional<std::string>(text) : std::nullopt;
}

int64_t env_int(const char* name, int64_t fallback, int64_t least, int64_t most) {
  const auto text = env_string(name);
  if (!text) return fallback;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < least || value > most)
    throw SetUpError(fmt::format("{}='{}': expected an integer from {} to {}", name, *text, least, most));
  return value;
}

const std::string& host_name() {
  static const auto* const name = [] {  // leaked: atexit functions write messages
    char buffer[256] = {};
    return new std::string(gethostname(buffer, sizeof buffer - 1) == 0 && buffer[0] ? buffer : "unknown-host");
  }();
  return *name;
}

}  // namespace tutti::detail
