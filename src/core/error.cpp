#include "tutti/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "core/printable.h"

namespace tutti {
using namespace detail;
namespace {

/// "worker 2", "workers 0-3", "workers 0-2, 5"
std::string describe_workers(const std::vector<int>& sorted) {
  std::string text = sorted.size() == 1 ? "worker " : "workers ";
  for (size_t i = 0; i < sorted.size();) {
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += last == i ? fmt::format("{}", sorted[i]) : fmt::format("{}-{}", sorted[i], sorted[last]);
    i = last + 1;
  }
  return text;
}

std::string describe(const std::vector<WorkerFailure>& failures) {
  // equal ones are folded: same command, function and message on several workers
  using Key = std::tuple<uint64_t, std::string, std::string, std::string>;
  std::map<Key, std::vector<const WorkerFailure*>> folded;
  for (const WorkerFailure& f : failures) folded[{f.seq, f.function, f.kind, f.message}].push_back(&f);

  std::string text;
  for (auto& [key, same] : folded) {
    std::vector<int> workers;
    for (const WorkerFailure* f : same) workers.push_back(f->worker);
    std::sort(workers.begin(), workers.end());
    const WorkerFailure& first = *same.front();
    if (!text.empty()) text += "\n";
    text += fmt::format("[{} {} pid {}{}] {}: {}: {}", describe_workers(workers), first.host, first.pid,
                        same.size() > 1 ? ", ..." : "", printable(first.function), first.kind, first.message);
    if (!first.issued_at.empty()) text += fmt::format("\n  issued at {} (command {})", first.issued_at, first.seq);
    if (!first.traceback.empty()) text += "\n  remote traceback:\n" + first.traceback;
  }
  return text;
}

}  // namespace

RemoteError::RemoteError(std::vector<WorkerFailure> failures) : Error(describe(failures)), failures_(std::move(failures)) {}

std::vector<int> RemoteError::workers() const {
  std::vector<int> ids;
  for (const WorkerFailure& f : failures_) ids.push_back(f.worker);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace tutti
