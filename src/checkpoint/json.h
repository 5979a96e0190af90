#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tutti::distributed {

/// An object in which no name comes twice.  @throws UsageError  anything else; `what`: for the message
nlohmann::json parse_object(std::string_view text, const std::string& what);

}  // namespace tutti::distributed
