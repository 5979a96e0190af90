#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/wire.h"

namespace tutti::detail {

/// Who takes part in a session and where. The same on all ranks.
struct Layout {
  uint64_t job = 0;      ///< a random number of the controller's process
  uint64_t session = 0;  ///< of that process, from 1
  int num_workers = 0;
  int num_groups = 1;
  std::vector<int32_t> node_of;  ///< by worker id; a node's leader is its lowest worker
  int32_t machine_ranks = 1;     ///< most ranks of this session on one machine: decides how to wait
  int32_t machine_cores = 1;     ///< fewest cores that the ranks of one machine may use together: decides how to wait, too

  int group_size() const { return num_workers / num_groups; }
  int num_nodes() const;
  std::vector<int32_t> workers_of(int node) const;
  int leader_of(int node) const { return workers_of(node).front(); }
  int32_t heartbeat = 0;     ///< seconds that a neighbour may be silent; 0: for ever
  std::string trace_folder;  ///< where flight recorders are written to; empty: nowhere

  static Layout one_node(int num_workers, int num_groups);  ///< of a new session
};
void encode(Writer& out, const Layout& layout);
Layout decode_layout(Reader& in);

}  // namespace tutti::detail
