#pragma once

#include <exception>
#include <string>
#include <typeinfo>

namespace tutti {

std::string type_name(const std::type_info& type);  ///< as in the source: "std::out_of_range"
/// error.what(); a user's class may return null there.
std::string what_of(const std::exception& error);

}  // namespace tutti
