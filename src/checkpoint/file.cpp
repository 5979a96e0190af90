#include "checkpoint/file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tutti/error.h"

namespace tutti::detail {
namespace {

constexpr size_t kAtOnce = size_t{1} << 30;  // a call moves 2 GiB at most

}  // namespace

File::File(const std::string& path, int flags, const char* what, bool direct) : path_(path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))  // to open a pipe would wait
    throw UsageError(fmt::format("{} is no regular file", path));
  do fd_.reset(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  while (!fd_ && errno == EINTR);
  if (!fd_) fail(what);
  if (direct) direct_ = DirectIo::open(fd_.get(), flags);
}

File File::open(const std::string& path, bool direct) { return {path, O_RDONLY, "open", direct}; }
File File::open_to_write(const std::string& path, bool direct) { return {path, O_WRONLY, "open for writing", direct}; }
File File::create(const std::string& path) { return {path, O_RDWR | O_CREAT | O_EXCL, "create"}; }

void File::fail(const char* what) const { throw SystemError(fmt::format("can't {} {}: {}", what, path_, std::strerror(errno))); }

int64_t File::size() const {
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0) fail("look at");
  return status.st_size;
}

int64_t File::time() const {
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0) fail("look at");
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

void File::resize(int64_t bytes, bool reserve) {
  if (ftruncate(fd_.get(), bytes) != 0) fail("make room for");
  if (reserve && bytes > 0 && fallocate(fd_.get(), 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR)
    fail("make room for");
}

void File::read(void* to, size_t bytes, int64_t at) const {
  for (auto* next = static_cast<char*>(to); bytes > 0;) {
    const ssize_t got = direct_ ? direct_->read(next, bytes, at) : pread(fd_.get(), next, std::min(bytes, kAtOnce), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read");
    if (got == 0) throw SystemError(fmt::format("{} ends at byte {}; {} more were expected", path_, at, bytes));
    next += got, at += got, bytes -= static_cast<size_t>(got);
  }
}

void File::write(const void* from, size_t bytes, int64_t at) const {
  if (direct_ ? !direct_->write(from, bytes, at) : !write_all(fd_.get(), from, bytes, at)) fail("write to");
}

void File::begin_to_sync() const noexcept {
  sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE);
}

void File::sync() const {
  if (direct_ && !direct_->flush()) fail("write to");
  if (fsync(fd_.get()) != 0) fail("write to the disk");
}

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(path, error);
  const auto folder = error ? whole : std::filesystem::canonical(whole.parent_path(), error);
  if (error) throw SystemError(fmt::format("can't find the folder of {}: {}", path, error.message()));
  return (folder / whole.filename()).string();
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw SystemError(fmt::format("can't rename {} to {}: {}", from, to, std::strerror(errno)));
}

void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  const Fd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // some file systems can't, and need not
  if (!fd || (fsync(fd.get()) != 0 && errno != EINVAL && errno != EROFS))
    throw SystemError(fmt::format("can't write the folder of {} to the disk: {}", path, std::strerror(errno)));
}

}  // namespace tutti::detail
