#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trace/trace.h"

namespace tutti::trace {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kThreads[] = {"commands", "collectives", "steps of programs"};

double us(int64_t from, int64_t to) { return (static_cast<double>(to) - static_cast<double>(from)) / 1000.0; }

}  // namespace

std::string timeline(const std::vector<Session>& sessions) {
  OrderedJson events = OrderedJson::array();
  int64_t start = INT64_MAX;
  for (const Session& s : sessions)
    for (const auto& [id, worker] : s.by_worker)
      for (const auto& [number, e] : worker.events) start = std::min(start, e.begin);
  int64_t base = 0;  // of the session's workers among all
  for (const Session& s : sessions) {
    for (const auto& [id, worker] : s.by_worker) {
      const int64_t process = base + id;
      events.push_back({{"ph", "M"},
                        {"name", "process_name"},
                        {"pid", process},
                        {"args", {{"name", fmt::format("worker {} ({} pid {})", id, worker.host, worker.pid)}}}});
      for (int thread : {0, 1, 2})
        events.push_back(
            {{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", thread}, {"args", {{"name", kThreads[thread]}}}});
      auto slice = [&](const std::string& name, const Event& e, int64_t from, int64_t to, int thread) {
        events.push_back({{"ph", "X"},
                          {"name", name},
                          {"pid", process},
                          {"tid", thread},
                          {"ts", us(start, from)},
                          {"dur", us(from, to)},
                          {"args", {{"command", e.command}, {"state", e.state}}}});
      };
      for (const auto& [number, e] : worker.events) {
        const int64_t end = e.end.value_or(worker.written);
        if (!e.is_collective) {
          slice(e.step ? fmt::format("{}: {}", e.step, e.what) : e.what, e, e.begin, end, e.step ? 2 : 0);
          continue;
        }
        const std::string name = fmt::format("{} ({} x {})", e.what, e.dtype, e.count);
        const int64_t agreed = e.agreed.value_or(end);
        slice("wait: " + name, e, e.begin, agreed, 1);
        if (e.agreed) slice(name, e, agreed, end, 1);
      }
    }
    base += s.workers;
  }
  return OrderedJson{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump(-1, ' ', false,
                                                                                         OrderedJson::error_handler_t::replace);
}

}  // namespace tutti::trace
