#include "checkpoint/json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "tutti/error.h"

namespace tutti::distributed {

using nlohmann::json;

json parse_object(std::string_view text, const std::string& what) {
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const auto check = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    else if (event == json::parse_event_t::object_end) names.pop_back();
    else if (event == json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second)
      throw UsageError(fmt::format("{}: '{}' comes twice", what, parsed.get<std::string>()));
    return true;
  };
  json object;
  try {
    object = json::parse(text, check);
  } catch (const json::exception& error) {
    throw UsageError(fmt::format("{} is no JSON: {}", what, error.what()));
  }
  if (!object.is_object()) throw UsageError(fmt::format("{}: expected a JSON object", what));
  return object;
}

}  // namespace tutti::distributed
