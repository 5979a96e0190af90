#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "trace/trace.h"

namespace tutti::trace {
namespace {

constexpr size_t kMostLines = 10;  // of a kind

double seconds(int64_t from, int64_t to) { return (static_cast<double>(to) - static_cast<double>(from)) * 1e-9; }

std::string operands(const Event& e) {
  if (e.what == "barrier" || e.what == "split") return e.what;
  const bool reduces = e.what == "allreduce" || e.what == "reduce_scatter",
             has_root = e.what == "broadcast" || e.what == "scatter" || e.what == "gather";
  std::string text = e.what + (reduces ? " " + e.op : "") + " " + e.dtype;
  if (e.what != "scatter" && e.what != "gather") text += fmt::format(" x {}", e.count);  // there everyone has a part of its own
  return has_root ? fmt::format("{} root {}", text, e.root) : text;
}

/// "worker 2", "workers 0-3, 5"
std::string list(const std::set<int32_t>& workers) {
  std::string text = workers.size() == 1 ? "worker " : "workers ";
  for (auto it = workers.begin(); it != workers.end();) {
    const int32_t first = *it;
    int32_t last = first;
    while (++it != workers.end() && *it == last + 1) ++last;
    text += fmt::format("{}{}", first == *workers.begin() ? "" : ", ", first);
    if (last > first) text += fmt::format("-{}", last);
  }
  return text;
}

/// Of the session's own communicators; those made by split are known to their members only.
std::set<int32_t> members(const Session& s, uint64_t communicator) {
  std::set<int32_t> all;
  const auto group = static_cast<int64_t>(communicator & 0xffffff);
  const int size = s.workers / s.groups;
  if (communicator >> 56 > 1 || (communicator >> 56 == 1 && group >= s.groups)) return all;
  const int64_t first = communicator >> 56 == 1 ? group * size : 0, end = communicator >> 56 == 1 ? first + size : s.workers;
  for (int64_t w = first; w < end; ++w) all.insert(static_cast<int32_t>(w));
  return all;
}

/// The workers that have run this command, and have it recorded, or run it now.
bool was_in(const Worker& worker, uint64_t command) {
  return std::any_of(worker.events.begin(), worker.events.end(),
                     [&](const auto& entry) { return !entry.second.is_collective && entry.second.command == command; });
}

std::string failures(const Session& s) {
  using ByFunction = std::map<std::string, std::set<int32_t>>;  // its workers
  std::map<uint64_t, ByFunction> failed, consequences;          // by command
  for (const auto& [id, worker] : s.by_worker)
    for (const auto& [number, e] : worker.events)
      if (e.step) continue;  // its command says it
      else if (!e.is_collective && e.state == "failed") failed[e.command][e.what].insert(id);
      else if (!e.is_collective && e.state == "consequence") consequences[e.command][e.what].insert(id);
  if (failed.empty()) return "  no command failed among those recorded\n";
  std::string text;
  size_t shown = 0;
  for (const auto& [command, by_function] : failed)
    for (const auto& [function, workers] : by_function) {
      if (++shown > kMostLines) continue;
      text += fmt::format("  {} {}: {} on {}", shown == 1 ? "first failing command" : "then command", command, function,
                          list(workers));
      const auto& others = consequences[command][function];
      text += others.empty() ? "\n" : fmt::format(", because of which it failed on {}\n", list(others));
    }
  if (shown > kMostLines) text += fmt::format("  and {} more\n", shown - kMostLines);
  return text;
}

std::string behind(const Session& s) {
  uint64_t most = 0;
  for (const auto& [id, worker] : s.by_worker) most = std::max(most, worker.finished);
  std::string text;
  for (const auto& [id, worker] : s.by_worker) {
    const auto running = std::find_if(worker.events.rbegin(), worker.events.rend(),
                                      [](const auto& entry) { return entry.second.state == "running"; });
    if (running == worker.events.rend()) continue;  // files are written at different moments: having finished less says nothing
    const Event& e = running->second;
    std::string what = e.is_collective ? fmt::format("{} {} #{} of command {}", e.agreed ? "moves data in" : "waits in", e.what,
                                                     e.index, e.command)
                                       : fmt::format("runs {} in command {}", e.what, e.command);
    what += fmt::format(" since {:.3f} s", seconds(e.begin, worker.written));
    text +=
        fmt::format("  worker {} ({} pid {}) {}; it has finished command {}{}\n", id, worker.host, worker.pid, what,
                    worker.finished, worker.finished < most ? fmt::format(", {} behind the first", most - worker.finished) : "");
  }
  return text;
}

std::string collectives(const Session& s) {
  using Id = std::tuple<uint64_t, uint64_t, uint32_t>;  // command, communicator, index
  struct Joined {
    std::map<std::string, std::set<int32_t>> by_operands;
    std::set<int32_t> workers;
    bool agreed = false;
  };
  std::map<Id, Joined> all;
  for (const auto& [id, worker] : s.by_worker)
    for (const auto& [number, e] : worker.events) {
      if (!e.is_collective || e.communicator >> 56 == 2) continue;  // a send and its receive are two things
      Joined& joined = all[{e.command, e.communicator, e.index}];
      joined.by_operands[operands(e)].insert(id);
      joined.workers.insert(id);
      joined.agreed |= e.agreed.has_value();
    }
  std::string text;
  size_t shown = 0;
  for (const auto& [id, joined] : all) {
    const auto& [command, communicator, index] = id;
    if (joined.agreed) continue;
    std::set<int32_t> missing;
    for (int32_t w : members(s, communicator))
      if (auto it = s.by_worker.find(w); !joined.workers.contains(w) && it != s.by_worker.end() && was_in(it->second, command))
        missing.insert(w);
    if (joined.by_operands.size() < 2 && missing.empty()) continue;
    if (++shown > kMostLines) continue;
    text += fmt::format("  collective #{} of command {} {}:", index, command,
                        joined.by_operands.size() < 2 ? "lacks members" : "does not fit together");
    for (const auto& [what, workers] : joined.by_operands) text += fmt::format(" {}: {};", list(workers), what);
    if (!missing.empty()) text += fmt::format(" {} not there;", list(missing));
    text.back() = '\n';
  }
  if (shown > kMostLines) text += fmt::format("  and {} more\n", shown - kMostLines);
  return text;
}

}  // namespace

std::string report(const Session& s) {
  std::string text =
      fmt::format("session {} of job {}: {} workers, written on {}\n", s.number, s.job, s.workers, fmt::join(s.reasons, ", "));
  std::set<int32_t> silent;
  for (int32_t w = 0; w < s.workers; ++w)
    if (!s.by_worker.contains(w)) silent.insert(w);
  if (!silent.empty()) text += fmt::format("  no trace of {}\n", list(silent));
  return text + failures(s) + behind(s) + collectives(s);
}

}  // namespace tutti::trace
