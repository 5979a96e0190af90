#include "control/wire/layout.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "core/doorbell.h"
#include "core/process.h"
#include "core/settings.h"

namespace tutti::detail {

int Layout::num_nodes() const { return 1 + *std::max_element(node_of.begin(), node_of.end()); }

std::vector<int32_t> Layout::workers_of(int node) const {
  std::vector<int32_t> ids;
  for (int w = 0; w < num_workers; ++w)
    if (node_of[static_cast<size_t>(w)] == node) ids.push_back(w);
  return ids;
}

Layout Layout::one_node(int num_workers, int num_groups) {
  static const uint64_t job = std::random_device{}() | uint64_t{std::random_device{}()} << 32;
  static std::atomic<uint64_t> sessions{0};
  Layout layout;
  layout.job = job;
  layout.session = ++sessions;
  layout.num_workers = layout.machine_ranks = num_workers;
  layout.num_groups = num_groups;
  layout.machine_cores = allowed_cores();
  layout.node_of.assign(static_cast<size_t>(num_workers), 0);
  layout.heartbeat = static_cast<int32_t>(settings().heartbeat_s);
  if (!settings().trace.empty()) layout.trace_folder = start_folder() / settings().trace;
  return layout;
}

void encode(Writer& out, const Layout& layout) {
  out.put(layout.job);
  out.put(layout.session);
  out.put(static_cast<int32_t>(layout.num_workers));
  out.put(static_cast<int32_t>(layout.num_groups));
  out.put(layout.machine_ranks);
  out.put(layout.machine_cores);
  out.put(layout.heartbeat);
  out.text(layout.trace_folder);
  out.list(layout.node_of);
}

Layout decode_layout(Reader& in) {
  Layout layout;
  layout.job = in.get<uint64_t>();
  layout.session = in.get<uint64_t>();
  layout.num_workers = in.get<int32_t>();
  layout.num_groups = in.get<int32_t>();
  layout.machine_ranks = in.get<int32_t>();
  layout.machine_cores = in.get<int32_t>();
  layout.heartbeat = in.get<int32_t>();
  layout.trace_folder = in.text();
  layout.node_of = in.list<int32_t>();
  if (layout.num_workers < 1 || std::ssize(layout.node_of) != layout.num_workers || layout.num_groups < 1 ||
      layout.num_workers % layout.num_groups != 0)
    throw WireError("an impossible session layout");
  for (int32_t node : layout.node_of)
    if (node < 0 || node >= layout.num_workers) throw WireError("an impossible node number");
  return layout;
}

}  // namespace tutti::detail
