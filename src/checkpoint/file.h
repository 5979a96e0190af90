#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/direct_io.h"
#include "core/handle.h"

namespace tutti::detail {

/// A regular file that is read and written at places. What fails is a SystemError that names it.
class File {
 public:
  File() = default;
  /// To read. direct: past the page cache, where the file system can.
  static File open(const std::string& path, bool direct = false);
  /// One that is there, to write only: NFS fills in the rest of a page where a file is open to be read, too, and writes the whole
  /// page later, over what another node has put there.
  static File open_to_write(const std::string& path, bool direct = false);
  static File create(const std::string& path);  ///< a new one, to read and write

  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  bool is_direct() const { return direct_ != nullptr; }
  const std::string& path() const { return path_; }
  int64_t size() const;
  int64_t time() const;                      ///< of the last change, in nanoseconds
  void resize(int64_t bytes, bool reserve);  ///< reserve: the disk's room as well, where the file system can
  void read(void* to, size_t bytes, int64_t at) const;
  void write(const void* from, size_t bytes, int64_t at) const;  ///< direct: some of it on sync()
  /// The disk begins to write, while the process goes on; what had begun before is through.
  void begin_to_sync() const noexcept;
  void sync() const;

 private:
  File(const std::string& path, int flags, const char* what, bool direct = false);
  [[noreturn]] void fail(const char* what) const;
  Fd fd_;
  std::unique_ptr<DirectIo> direct_;
  std::string path_;
};

/// The same for all processes of a node. Links of the folder are followed, not that of the file: what it leads to may have
/// another name, as in huggingface's cache.  @throws SystemError  the folder can't be found
std::string absolute_path(const std::string& path);
void rename_file(const std::string& from, const std::string& to);
void sync_folder_of(const std::string& path);  ///< names in it last then

}  // namespace tutti::detail
