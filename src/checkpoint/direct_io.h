#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "core/handle.h"

namespace tutti::detail {

/// A file that is read and written past the page cache (O_DIRECT), in whole blocks of the disk, by way of an aligned buffer. What
/// is less than a block at the ends goes through the cache: other processes may write the rest of that block. So do pieces that
/// are too short to be worth a disk's time, and what the file system refuses. Calls return what read(2) and write(2) do, with
/// errno.
class DirectIo {
 public:
  /// Null: the file system can't.  @param cached  the file, open as usual with these flags; it stays its owner's
  static std::unique_ptr<DirectIo> open(int cached, int flags);
  ssize_t read(void* to, size_t bytes, int64_t at);        ///< some of them
  bool write(const void* from, size_t bytes, int64_t at);  ///< some when the buffer is full, or on flush()
  bool flush();

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  DirectIo(Fd direct, int cached);
  const Fd direct_;
  const int cached_;
  const std::unique_ptr<std::byte, Free> buffer_;
  int64_t begin_ = 0, end_ = 0;  // what has been read, or is to be written; it lies in the buffer as in its blocks
};

/// All of it.
bool write_all(int fd, const void* from, size_t bytes, int64_t at);

}  // namespace tutti::detail
