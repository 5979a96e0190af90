#pragma once

#include <string_view>

namespace tutti {

std::string_view version();  ///< of the library, "major.minor.patch"

}  // namespace tutti
