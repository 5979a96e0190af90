#include "core/arena.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <random>

#include "core/log.h"
#include "core/memory_limit.h"
#include "core/settings.h"
#include "tutti/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tutti::detail {

Arena& Arena::here() {
  static Arena* arena = [] {
    static Arena* made = new Arena;  // leaked: tensors in static objects may go later
    ::pthread_atfork([] { made->mutex_.lock(); }, [] { made->mutex_.unlock(); },
                     [] {
                       for (auto& extent : made->extents_) extent->inherited = true;
                       for (auto& blocks : made->free_) blocks.clear();
                       made->used_bytes_ = made->cached_bytes_ = 0;
                       made->next_id_ = std::random_device{}();
                       made->mutex_.unlock();
                     });
    return made;
  }();
  return *arena;
}

Arena::Arena()
    : enabled_(settings().arena && ::sysconf(_SC_PAGESIZE) <= static_cast<long>(kLeast)), next_id_(std::random_device{}()) {}

/// Memory that is populated at once must be there: more than the machine has is for other memory to refuse, or to promise.
bool Arena::can_hold(size_t size_bytes) const {
  rlimit files{};
  const bool limited = ::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur != RLIM_INFINITY &&
                       size_bytes > files.rlim_cur;  // beyond: a signal
  return !limited && size_bytes / static_cast<size_t>(::sysconf(_SC_PAGESIZE)) < static_cast<size_t>(::sysconf(_SC_PHYS_PAGES));
}

void* Arena::allocate(size_t size_bytes) noexcept try {
  if (size_bytes < kLeast || !enabled_) return nullptr;
  const size_t order = std::bit_width((size_bytes - 1) / kLeast);
  if (order >= kOrders || !can_hold(size_of(order))) return nullptr;
  const std::lock_guard lock(mutex_);
  std::byte* block = take(order);
  if (!block && add_extent(order)) block = take(order);
  if (!block) return nullptr;
  Extent& extent = *extent_of(block);
  const size_t first = static_cast<size_t>(block - extent.memory.data()) / kLeast;
  cached_bytes_ -= count_populated(extent, first, size_t{1} << order) * kLeast;
  if (const char* why = why_not_populated(extent, first, (size_bytes + kLeast - 1) / kLeast)) {
    forget(extent, block, order);
    give_back(extent, block, order);
    log(warned_ ? LogLevel::kInfo : LogLevel::kWarn,
        "no {} bytes of memory that peers can map ({}); other memory is used, which collectives are slower on", size_bytes, why);
    warned_ = true;
    return nullptr;
  }
  extent.orders[first] = static_cast<int8_t>(order);
  used_bytes_ += count_populated(extent, first, size_t{1} << order) * kLeast;
  return block;
} catch (const std::exception& error) {
  log(warned_ ? LogLevel::kInfo : LogLevel::kWarn,
      "no memory that peers can map ({}); other memory is used, which collectives are slower on", error.what());
  warned_ = true;
  return nullptr;
}

bool Arena::free(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  Extent* extent = extent_of(memory);
  if (!extent) return false;
  if (extent->inherited) return true;
  auto* block = static_cast<std::byte*>(memory);
  const size_t first = static_cast<size_t>(block - extent->memory.data()) / kLeast;
  int8_t& order = extent->orders[first];
  used_bytes_ -= count_populated(*extent, first, size_t{1} << order) * kLeast;
  give_back(*extent, block, static_cast<size_t>(order));
  order = -1;
  return true;
}

std::optional<Arena::Place> Arena::find(const void* memory, size_t size_bytes) {
  if (!enabled_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Extent* extent = extent_of(memory);
  if (!extent || extent->inherited) return std::nullopt;
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(memory) - extent->memory.data());
  if (size_bytes > extent->memory.size_bytes() - offset) return std::nullopt;
  return Place{extent->memory.fd(), extent->id, offset};
}

size_t Arena::cached_bytes() {
  const std::lock_guard lock(mutex_);
  return cached_bytes_;
}

Arena::Extent* Arena::extent_of(const void* memory) {
  for (const auto& extent : extents_) {
    const std::byte* begin = extent->memory.data();
    if (memory >= begin && memory < begin + extent->memory.size_bytes()) return extent.get();
  }
  return nullptr;
}

/// A free block, split off a larger one if need be.
std::byte* Arena::take(size_t order) {
  size_t from = order;
  while (from < kOrders && free_[from].empty()) ++from;
  if (from == kOrders) return nullptr;
  std::byte* block = *free_[from].begin();
  free_[from].erase(free_[from].begin());
  while (from-- > order) free_[from].insert(block + size_of(from));
  return block;
}

/// Each as large as all before together: their number, and that of their file descriptors, stays small. What nobody touches costs
/// nothing.
bool Arena::add_extent(size_t order) {
  const size_t least = std::max(kExtent, size_of(order));
  size_t size = std::max(least, std::bit_floor(total_bytes_ + 1));
  auto extent = std::make_unique<Extent>();
  if (size > least && can_hold(size)) try {
      extent->memory = SharedMemory::create(size);
    } catch (const SystemError&) {  // a limit of address space, say
    }
  if (!extent->memory.data()) extent->memory = SharedMemory::create(size = least);
  extent->id = next_id_++;
  extent->orders.assign(size / kLeast, -1);
  extent->populated.assign(size / kLeast, false);
  ::madvise(extent->memory.data(), size, MADV_HUGEPAGE);  // where the administrator allows it
  free_[static_cast<size_t>(std::bit_width(size / kLeast)) - 1].insert(extent->memory.data());
  total_bytes_ += size;
  extents_.push_back(std::move(extent));
  return true;
}

size_t Arena::count_populated(const Extent& extent, size_t first, size_t units) const {
  const auto begin = extent.populated.begin() + static_cast<ptrdiff_t>(first);
  return static_cast<size_t>(std::count(begin, begin + static_cast<ptrdiff_t>(units), true));
}

/// Beyond the limit of a control group the kernel kills. Others of the group may be taking as much at this moment. Looking takes
/// tens of microseconds.
bool Arena::may_take(size_t size_bytes) {
  constexpr size_t kWorthALook = size_t{4} << 20, kTakers = 8;
  if (size_bytes < kWorthALook) return true;
  const auto has_room = [&] {
    const auto left = memory_left();
    return !left || size_bytes <= *left / kTakers;
  };
  if (has_room()) return true;
  drop_cache(0);
  return has_room();
}

/// Large blocks first.
void Arena::drop_cache(size_t down_to) {
  for (size_t order = kOrders; order-- > 0;)
    for (std::byte* block : free_[order]) {
      if (cached_bytes_ <= down_to) return;
      cached_bytes_ -= forget(*extent_of(block), block, order);
    }
}

/// How much free memory is kept of this much. A limit of a control group counts what is free here, too, and other processes of
/// the group can't have it.
size_t Arena::most_cached(size_t free_bytes) const {
  if (free_bytes <= kMostCached || used_bytes_ <= kMostCached) return kMostCached;
  const auto left = memory_left();
  return !left || *left >= used_bytes_ ? used_bytes_ : kMostCached;
}

/// All at once is two to three times as fast as page by page, and what is lacking is an error instead of a signal. Null: it is
/// there.
const char* Arena::why_not_populated(Extent& extent, size_t first, size_t units) {
  for (size_t at = first; at < first + units;) {
    size_t end = at;
    while (end < first + units && end - at < kPiece / kLeast && extent.populated[end] == extent.populated[at]) ++end;
    if (!extent.populated[at]) {
      std::byte* begin = extent.memory.data() + at * kLeast;
      const size_t size = (end - at) * kLeast;
      if (!may_take(size)) return "the memory limit of the control group leaves too little";
      const auto insist = [](auto call) {
        int failed = 0;
        do failed = call();
        while (failed != 0 && (errno == EINTR || errno == EAGAIN));
        return failed;
      };
      int failed = insist([&] { return ::madvise(begin, size, MADV_POPULATE_WRITE); });
      if (failed != 0 && errno == EINVAL)  // before Linux 5.14
        failed =
            insist([&] { return ::fallocate(extent.memory.fd(), 0, begin - extent.memory.data(), static_cast<off_t>(size)); });
      if (failed != 0) return std::strerror(errno);
      std::fill(extent.populated.begin() + static_cast<ptrdiff_t>(at), extent.populated.begin() + static_cast<ptrdiff_t>(end),
                true);
    }
    at = end;
  }
  return nullptr;
}

/// Its memory goes back to the system; how much of it was populated. madvise and not fallocate: libraries that remember
/// registered memory (Open MPI's and UCX's for InfiniBand) hook it.
size_t Arena::forget(Extent& extent, std::byte* block, size_t order) {
  const size_t first = static_cast<size_t>(block - extent.memory.data()) / kLeast, units = size_t{1} << order;
  const size_t populated = count_populated(extent, first, units) * kLeast;
  if (::madvise(block, size_of(order), MADV_REMOVE) != 0) return 0;
  std::fill_n(extent.populated.begin() + static_cast<ptrdiff_t>(first), units, false);
  return populated;
}

void Arena::give_back(Extent& extent, std::byte* block, size_t order) {
  std::byte* begin = extent.memory.data();
  size_t populated = count_populated(extent, static_cast<size_t>(block - begin) / kLeast, size_t{1} << order) * kLeast;
  const size_t most = most_cached(cached_bytes_ + populated);
  if (populated > most) populated -= forget(extent, block, order);
  drop_cache(most - std::min(most, populated));  // others go first: the next one like this is wanted soon
  cached_bytes_ += populated;
  for (; size_of(order) < extent.memory.size_bytes(); ++order) {
    std::byte* buddy = begin + (static_cast<size_t>(block - begin) ^ size_of(order));
    if (free_[order].erase(buddy) == 0) break;
    block = std::min(block, buddy);
  }
  free_[order].insert(block);
}

}  // namespace tutti::detail
