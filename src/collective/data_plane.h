#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/doorbell.h"

namespace tutti::detail {

class PeerMemory;

/// What the workers of a node pass data by; member = worker id.
struct NodePlane {
  std::function<bool(int worker)> has;  ///< it is on this node
  std::function<std::byte*(int worker)> staging;
  std::function<std::atomic<uint64_t>&(int worker)> step;  ///< how many hand-overs this worker has made
  size_t staging_bytes = 0;                                ///< of each worker's staging memory
  bool one_process = false;                                ///< the workers are threads
  PeerMemory* peers = nullptr;
  Doorbell* bell = nullptr;
  WaitPolicy policy;
  std::function<void()> check_alive;  ///< throws when a peer process is gone
};

/// What a back end may build on.
struct DataPlane {
  int worker = 0;
  const NodePlane* node = nullptr;
  const std::vector<int32_t>* node_of = nullptr;  ///< by worker
  void* mpi_parent = nullptr;                     ///< MPI_Comm* dedicated to data, ranks = worker ids; null without MPI
  /// Throws when its work can't go on: another member has failed, or, if this one `waits` for the members, does not come.
  std::function<void(bool waits)> check_device = [](bool) {};
};

}  // namespace tutti::detail
