#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <vector>

#include "collective/buffer.h"
#include "collective/data_plane.h"
#include "collective/node/operand.h"
#include "core/shared_memory.h"

namespace tutti::detail {

/// Where the others on the node find this memory of ours.
Operand operand_of(Buffer buffer, const NodePlane& node);

/// Other workers' arenas, mapped when first needed and kept: they don't move.
class PeerMemory {
 public:
  explicit PeerMemory(std::function<pid_t(int worker)> pid) : pid_(std::move(pid)) {}
  /// Byte `begin` of an operand of that worker; so many bytes from there on are about to be used.
  /// @param operand  reachable
  /// @throws SystemError  it can't be mapped
  char* map(int worker, const Operand& operand, int64_t begin, int64_t size_bytes);

 private:
  struct Extent {
    SharedMemory memory;
    std::vector<bool> touched;  // by kPiece: its pages are in our tables
  };
  std::function<pid_t(int)> pid_;
  std::map<std::pair<int, uint64_t>, Extent> extents_;  // by worker and number
};

}  // namespace tutti::detail
