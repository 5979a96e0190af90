#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

namespace tutti {

/// One owner per C handle. Traits: Raw, null(), free(Raw) noexcept.
template <class Traits>
class UniqueHandle {
 public:
  using Raw = typename Traits::Raw;
  UniqueHandle() noexcept = default;
  explicit UniqueHandle(Raw raw) noexcept : raw_(raw) {}
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
    if (Raw old = std::exchange(raw_, raw); old != Traits::null()) Traits::free(old);
  }

 private:
  Raw raw_ = Traits::null();
};

struct FdTraits {
  using Raw = int;
  static constexpr int null() { return -1; }
  static void free(int fd) noexcept { ::close(fd); }
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

}  // namespace tutti
