#pragma once

#include <sys/types.h>

#include <cstddef>

#include "core/handle.h"

namespace tutti::detail {

/// Zeroed memory that other processes of this machine can map: a memfd, its size sealed. Nothing of it has a name in a
/// file system, so nothing can be left behind.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// New memory, mapped.  @throws SystemError
  static SharedMemory create(size_t size_bytes);
  /// Memory of this process and its threads only; fd() is -1.
  static SharedMemory create_private(size_t size_bytes);
  /// A peer's memory: pid and fd as the creator sees them. The size is read from the file and must be sealed.
  /// @throws SystemError  no such process, another pid namespace, no permission: the memory can't be shared
  static SharedMemory open(pid_t pid, int fd);

  std::byte* data() const { return static_cast<std::byte*>(mapping_.get().address); }
  size_t size_bytes() const { return mapping_.get().size_bytes; }
  int fd() const { return fd_.get(); }
  void close_fd() { fd_.reset(); }  ///< the mapping stays

 private:
  Fd fd_;
  Mapping mapping_;
};

}  // namespace tutti::detail
