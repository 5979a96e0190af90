#include "checkpoint/json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "tutti/error.h"

namespace tutti::distributed {
namespace {

using nlohmann::json;

/// Looks at a text once before it is parsed: what is refused costs little memory, and no stack.
class Check : public nlohmann::json_sax<json> {
 public:
  explicit Check(const std::string& what) : what_(what) {}
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool key(string_t& name) override {
    if (!names_.back().insert(name).second) throw UsageError(fmt::format("{}: '{}' comes twice", what_, name));
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    throw UsageError(fmt::format("{} is no JSON: {}", what_, error.what()));
  }

 private:
  bool open() {
    constexpr size_t kDeepest = 16;
    if (names_.size() == kDeepest) throw UsageError(fmt::format("{}: more than {} levels deep", what_, kDeepest));
    names_.emplace_back();
    return true;
  }
  bool close() {
    names_.pop_back();
    return true;
  }
  const std::string& what_;
  std::vector<std::set<std::string>> names_;  // of what is open
};

}  // namespace

json parse_object(std::string_view text, const std::string& what) {
  if (text.find('\0') != std::string_view::npos) throw UsageError(fmt::format("{} is no JSON: it has a NUL", what));
  Check check(what);
  json::sax_parse(text, &check);
  json object = json::parse(text);
  if (!object.is_object()) throw UsageError(fmt::format("{}: expected a JSON object", what));
  return object;
}

int64_t to_number(const json& value, const std::string& what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{INT64_MAX})
    throw UsageError(fmt::format("{}: expected a number from 0 to 2^63 - 1, got {}", what, shown(value)));
  return value.get<int64_t>();
}

std::string format_json(const json& value, int indent) {
  try {
    return value.dump(indent);
  } catch (const json::type_error& error) {
    throw UsageError(fmt::format("save: a name, or metadata, is not UTF-8: {}", error.what()));
  }
}

std::string shown(const json& value) {
  constexpr size_t kMost = 80;
  if (value.is_structured()) return value.type_name();
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);  // ASCII: can be cut anywhere
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace tutti::distributed
