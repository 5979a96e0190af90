#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tutti::distributed {

/// An object in which no name comes twice, and nothing lies deeper than a header needs.  @throws UsageError  anything else;
/// `what`: for the message
nlohmann::json parse_object(std::string_view text, const std::string& what);

/// @throws UsageError  it is no number from 0 to 2^63 - 1
int64_t to_number(const nlohmann::json& value, const std::string& what);

/// Its text.  @throws UsageError  a string is not UTF-8
std::string format_json(const nlohmann::json& value, int indent = -1);

/// For messages: numbers, strings that are short; of others what they are.
std::string shown(const nlohmann::json& value);

}  // namespace tutti::distributed
