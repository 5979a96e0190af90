#pragma once

#include <string_view>

#include "tutti/export.h"

namespace tutti {

TUTTI_API std::string_view version();  ///< of the library, "major.minor.patch"

}  // namespace tutti
