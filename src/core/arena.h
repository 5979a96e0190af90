#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "core/shared_memory.h"

namespace tutti::detail {

/// The process's host memory that the other processes of its node can map: blocks of memfd extents, by halves (buddies) of powers
/// of two. Extents stay for the life of the process, so a peer's mapping never loses its ground; what is free
/// beyond kMostCached goes back to the kernel; beyond as much as is in use, if that is more, and a control group has room. A
/// program whose tensors come and go finds their memory again, which would take longer to clear than to fill. A child after
/// fork() sees its parent's blocks (shared, not copied) and takes its own from new extents.
class Arena {
 public:
  static constexpr size_t kLeast = size_t{16} << 10;  ///< of a block; what is smaller is no business of an arena
  static constexpr size_t kExtent = size_t{64} << 20;
  static constexpr size_t kMostCached = size_t{256} << 20;
  static constexpr size_t kPiece = size_t{16} << 20;  ///< taken at once

  /// Where a block lies, as peers need it.
  struct Place {
    int fd = -1;
    uint64_t extent = 0;  ///< with its process names the extent: numbers are not used again
    uint64_t offset = 0;
  };

  static Arena& here();
  /// Populated memory, aligned to kLeast; null where this can't be had (too small, TUTTI_ARENA=0, limits): use other memory.
  void* allocate(size_t size_bytes) noexcept;
  bool free(void* memory) noexcept;  ///< false: not from here
  std::optional<Place> find(const void* memory, size_t size_bytes);
  size_t cached_bytes();  ///< free, and still backed by memory

 private:
  static constexpr size_t kOrders = 32;  // of kLeast << order
  struct Extent {
    SharedMemory memory;
    uint64_t id = 0;
    std::vector<int8_t> orders;   // of the block in use that begins at this unit of kLeast; -1: none does
    std::vector<bool> populated;  // by unit
    bool inherited = false;       // from the process that this one was forked of
  };
  Arena();
  Extent* extent_of(const void* memory);
  std::byte* take(size_t order);
  bool add_extent(size_t order);
  bool may_take(size_t size_bytes);
  void drop_cache(size_t down_to);
  const char* why_not_populated(Extent& extent, size_t first, size_t units);
  size_t forget(Extent& extent, std::byte* block, size_t order);
  size_t count_populated(const Extent& extent, size_t first, size_t units) const;
  size_t most_cached(size_t free_bytes) const;
  void give_back(Extent& extent, std::byte* block, size_t order);
  bool can_hold(size_t size_bytes) const;
  static size_t size_of(size_t order) { return kLeast << order; }

  std::mutex mutex_;
  bool enabled_ = true, warned_ = false;
  uint64_t next_id_ = 0;
  size_t total_bytes_ = 0, used_bytes_ = 0, cached_bytes_ = 0;  // the last two: populated
  std::vector<std::unique_ptr<Extent>> extents_;
  std::array<std::set<std::byte*>, kOrders> free_;  // lowest first: extents fill from their beginning
};

}  // namespace tutti::detail
