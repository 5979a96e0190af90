#include <dirent.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "trace/trace.h"
#include "tutti/error.h"

namespace tutti::trace {
using namespace detail;
namespace {

using Json = nlohmann::json;
constexpr size_t kMostBytes = size_t{64} << 20;  // a file of 2,048 records is well below one
constexpr int32_t kMostWorkers = 1 << 20;
constexpr const char* kSchema = "tutti.trace/1";

/// nlohmann converts any number to any other; a file may hold any.
template <class T>
T number(const Json& json, const char* key, T least, T most) {
  const Json& value = json.at(key);
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(most)
                                               : value.is_number_integer() && value.get<int64_t>() >= static_cast<int64_t>(least);
  if (!fits)
    throw UsageError(fmt::format("'{}' is {}, expected an integer from {} to {}", key, value.dump().substr(0, 40), least, most));
  const T result = value.get<T>();
  if (result < least) throw UsageError(fmt::format("'{}' is {}, expected at least {}", key, result, least));
  return result;
}
int64_t time(const Json& json, const char* key) { return number<int64_t>(json, key, 0, INT64_MAX); }
uint64_t count(const Json& json, const char* key) { return number<uint64_t>(json, key, 0, UINT64_MAX); }
/// Goes to a terminal.
std::string text(const Json& json, const char* key) { return printable(json.at(key).get_ref<const std::string&>()); }

Event event_of(const Json& json) {
  Event e;
  e.number = count(json, "number");
  e.command = count(json, "command");
  e.state = text(json, "state");
  e.begin = time(json, "begin");
  if (json.contains("end")) e.end = time(json, "end");
  if (json.contains("agreed")) e.agreed = time(json, "agreed");
  e.is_collective = json.contains("collective");
  if (json.contains("step")) e.step = number<uint32_t>(json, "step", 1, UINT32_MAX);
  if (!e.is_collective) {
    e.what = text(json, json.contains("function") ? "function" : "action");
    return e;
  }
  e.what = text(json, "collective");
  e.communicator = count(json, "communicator");
  e.index = number<uint32_t>(json, "index", 0, UINT32_MAX);
  e.count = number<int64_t>(json, "count", INT64_MIN, INT64_MAX);
  e.dtype = text(json, "dtype");
  e.op = text(json, "op");
  e.root = number<int32_t>(json, "root", INT32_MIN, INT32_MAX);
  return e;
}

}  // namespace

Session read_text(const std::string& content, const std::string& name) try {
  const Json json = Json::parse(content);
  if (text(json, "schema") != kSchema) throw UsageError(fmt::format("schema '{}', expected '{}'", text(json, "schema"), kSchema));
  Session s{.job = text(json, "job"),
            .number = count(json, "session"),
            .workers = number<int32_t>(json, "workers", 1, kMostWorkers),
            .groups = number<int32_t>(json, "groups", 1, kMostWorkers),
            .reasons = {text(json, "reason")},
            .by_worker = {}};
  if (s.workers % s.groups != 0) throw UsageError(fmt::format("{} workers in {} groups", s.workers, s.groups));
  Worker& worker = s.by_worker[number<int32_t>(json, "worker", 0, s.workers - 1)];
  worker.host = text(json, "host");
  worker.pid = number<int64_t>(json, "pid", 0, INT64_MAX);
  worker.finished = count(json, "finished");
  worker.written = time(json, "written");
  for (const Json& record : json.at("records")) {
    Event e = event_of(record);
    worker.events.insert_or_assign(e.number, std::move(e));
  }
  return s;
} catch (const std::exception& error) {
  throw UsageError(fmt::format("{} is no trace of tutti: {}", name, error.what()));
}

namespace {

std::string content_of(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) throw UsageError(fmt::format("{} is no regular file", printable(path)));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw SystemError(fmt::format("{}: {}", printable(path), std::strerror(errno)));
  if (std::filesystem::file_size(path) > kMostBytes)
    throw UsageError(fmt::format("{} is larger than {} bytes: no trace", printable(path), kMostBytes));
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Dumps of a worker may come in any order: what has ended is known better than what ran, the last state is the last one's.
void merge(Session& into, Session& part) {
  if (std::find(into.reasons.begin(), into.reasons.end(), part.reasons.front()) == into.reasons.end())
    into.reasons.push_back(part.reasons.front());
  auto& [id, from] = *part.by_worker.begin();
  Worker& to = into.by_worker[id];
  if (from.written >= to.written) to.host = from.host, to.pid = from.pid, to.finished = from.finished, to.written = from.written;
  for (auto& [number, event] : from.events)
    if (auto [it, is_new] = to.events.try_emplace(number, event); !is_new && event.end) it->second = std::move(event);
}

}  // namespace

std::vector<Session> read_folder(const std::string& folder, std::vector<std::string>& problems) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (const std::string name = entry.path().filename(); name.starts_with("tutti-") && name.ends_with(".json"))
      paths.push_back(entry.path());
  if (error) throw SystemError(fmt::format("{}: {}", folder, error.message()));
  if (paths.empty())
    throw UsageError(fmt::format("{} holds no traces (tutti-*.json); run the program with TUTTI_TRACE={}", folder, folder));
  std::sort(paths.begin(), paths.end());
  std::vector<Session> sessions;
  for (const std::string& path : paths) try {
      Session part = read_text(content_of(path), printable(path));
      auto it = std::find_if(sessions.begin(), sessions.end(), [&](const Session& s) {
        return s.job == part.job && s.number == part.number && s.workers == part.workers;
      });
      if (it == sessions.end()) sessions.push_back(std::move(part));
      else merge(*it, part);
    } catch (const std::exception& failure) {
      problems.emplace_back(failure.what());
    }
  if (sessions.empty()) throw UsageError(fmt::format("{} holds no traces that can be read: {}", folder, problems.front()));
  return sessions;
}

}  // namespace tutti::trace
