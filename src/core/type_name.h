#pragma once

#include <string>
#include <typeinfo>

namespace tutti {

std::string type_name(const std::type_info& type);  ///< as in the source: "std::out_of_range"

}  // namespace tutti
