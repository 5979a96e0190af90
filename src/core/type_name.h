#pragma once

#include <exception>
#include <string>

#include "tutti/value.h"  // type_name: as in the source, "std::out_of_range"

namespace tutti::detail {

/// error.what(); a user's class may return null there.
std::string what_of(const std::exception& error);

}  // namespace tutti::detail
