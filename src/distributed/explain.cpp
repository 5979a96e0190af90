#include <fmt/format.h>

#include "distributed/memory.h"
#include "distributed/transition.h"

namespace tutti::distributed {

int64_t bytes_moved(const DTensorStructInfo& from, const DTensorStructInfo& to) {
  int64_t bytes = 0;
  for (const Transition& step : plan(from, to)) bytes = saturated_sum(bytes, step.traffic().bytes);
  return bytes;
}

int64_t peak_bytes(const DTensorStructInfo& from, const DTensorStructInfo& to) { return peak(plan(from, to)).packed; }

std::string explain(const DTensorStructInfo& from, const DTensorStructInfo& to) {
  std::string text = fmt::format("{}\n", to_string(from));
  const std::vector<Transition> steps = plan(from, to);
  for (const Transition& step : steps) {
    const auto traffic = step.traffic();
    text += fmt::format("-> '{}' on {}: {} bytes in {} messages, at most {} to or from a worker{}\n",
                        to_string(step.to.placement()), to_string(step.to.device_mesh()), traffic.bytes, traffic.messages,
                        traffic.most, step.addends > 1 ? fmt::format("; each element is reduced from {}", step.addends) : "");
  }
  const Peak memory = peak(steps);
  text += fmt::format(
      "memory besides a worker's part, with the result: {} bytes where workers read each other's parts, {} where blocks are "
      "packed\n",
      memory.mapped, memory.packed);
  return text;
}

}  // namespace tutti::distributed
