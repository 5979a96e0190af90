#pragma once

#include <exception>
#include <string>

namespace tutti::detail {

/// error.what(); a user's class may return null there.
std::string what_of(const std::exception& error);

}  // namespace tutti::detail
