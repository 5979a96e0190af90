#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/error.h"

namespace tutti::detail {

/// What the program was started with does not fit: it ends with exit code 99.
class SetUpError : public UsageError {
 public:
  using UsageError::UsageError;
};

std::optional<std::string> env_string(const char* name);  ///< nothing when unset or empty
/// @throws SetUpError  set, but not an integer in [least, most]
int64_t env_int(const char* name, int64_t fallback, int64_t least, int64_t most);
const std::string& host_name();

}  // namespace tutti::detail
