#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

namespace tutti::detail {

/// One owner per C handle. Traits: Raw, null(), free(Raw) noexcept; where a handle must be another one to be ours, own(Raw)
/// noexcept.
template <class Traits>
class UniqueHandle {
 public:
  using Raw = typename Traits::Raw;
  UniqueHandle() noexcept = default;
  explicit UniqueHandle(Raw raw) noexcept : raw_(own(raw)) {}
  UniqueHandle(UniqueHandle&& other) noexcept : raw_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~UniqueHandle() { reset(); }
  Raw get() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ != Traits::null(); }
  [[nodiscard]] Raw release() noexcept { return std::exchange(raw_, Traits::null()); }
  void reset(Raw raw = Traits::null()) noexcept {
    if (Raw old = std::exchange(raw_, own(raw)); old != Traits::null()) Traits::free(old);
  }

 private:
  static Raw own(Raw raw) noexcept {
    if constexpr (requires { Traits::own(raw); }) return Traits::own(raw);
    else return raw;
  }
  Raw raw_ = Traits::null();
};

struct FdTraits {
  using Raw = int;
  static constexpr int null() { return -1; }
  static void free(int fd) noexcept { ::close(fd); }
  /// At least 3. A program that was started with a closed stream (`program >&-`) must not print into a file of ours.
  static int own(int fd) noexcept {
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    ::close(fd);
    errno = error;
    return moved;
  }
};
using Fd = UniqueHandle<FdTraits>;

struct Pages {
  void* address = nullptr;
  size_t size_bytes = 0;
  bool operator==(const Pages&) const = default;
};
struct MappingTraits {
  using Raw = Pages;
  static constexpr Pages null() { return {}; }
  static void free(Pages pages) noexcept { ::munmap(pages.address, pages.size_bytes); }
};
using Mapping = UniqueHandle<MappingTraits>;

}  // namespace tutti::detail
