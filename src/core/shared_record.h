#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace tutti::detail {

/// A small message in shared memory: one writer replaces it, any process reads a consistent copy (a sequence lock).
/// Zeroed memory is an empty record. Layout: version (odd while being written), size in bytes, words.
class SharedRecord {
 public:
  static constexpr size_t footprint(size_t capacity_bytes) { return 16 + (capacity_bytes + 7) / 8 * 8; }

  SharedRecord() = default;
  SharedRecord(std::byte* memory, size_t capacity_bytes)
      : words_(reinterpret_cast<std::atomic<uint64_t>*>(memory)), capacity_bytes_(capacity_bytes) {}

  uint64_t version() const { return words_[0].load(std::memory_order_acquire); }

  void write(std::span<const std::byte> bytes) {
    if (bytes.size() > capacity_bytes_) throw std::length_error("shared record too large");
    const uint64_t version = words_[0].load(std::memory_order_relaxed);
    words_[0].store(version + 1, std::memory_order_seq_cst);
    words_[1].store(bytes.size(), std::memory_order_release);
    for (size_t i = 0; i * 8 < bytes.size(); ++i) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i * 8, std::min<size_t>(8, bytes.size() - i * 8));
      words_[2 + i].store(word, std::memory_order_release);  // release: never seen before the odd version
    }
    words_[0].store(version + 2, std::memory_order_seq_cst);
  }

  /// Copies the record into `out`; false while the writer is at it (try again).
  bool read(std::vector<std::byte>& out) const {
    const uint64_t before = version();
    if (before % 2 != 0) return false;
    const uint64_t size = std::min<uint64_t>(words_[1].load(std::memory_order_acquire), capacity_bytes_);
    out.resize(size);
    for (size_t i = 0; i * 8 < size; ++i) {
      const uint64_t word = words_[2 + i].load(std::memory_order_acquire);  // acquire: the check below comes after
      std::memcpy(out.data() + i * 8, &word, std::min<size_t>(8, size - i * 8));
    }
    return words_[0].load(std::memory_order_relaxed) == before;
  }

  /// read(), but each version once: `seen` is the last one's.
  bool read_next(std::vector<std::byte>& out, uint64_t& seen) const {
    const uint64_t now = version();
    if (now == seen || !read(out) || version() != now) return false;
    seen = now;
    return true;
  }

 private:
  std::atomic<uint64_t>* words_ = nullptr;
  size_t capacity_bytes_ = 0;
};

}  // namespace tutti::detail
