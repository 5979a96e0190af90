#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti::detail {

/// A byte stream in shared memory: one writer, any number of readers, each of which sees every byte. Positions count
/// bytes for ever; a stream never breaks at a frame that is larger than the ring. Its size is a power of two. This is the
/// writer's end.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(std::span<std::byte> memory, std::atomic<uint64_t>* head, std::vector<std::atomic<uint64_t>*> tails)
      : memory_(memory), head_(head), tails_(std::move(tails)), at_(head->load()) {
    assert(std::has_single_bit(memory.size()));
  }

  size_t space(size_t enough);                          ///< writable now. Looks closely only if it must
  size_t write_some(std::span<const std::byte> bytes);  ///< how many were taken
  /// So much space is worth a wait when that many bytes are to come: two that take turns at the edge of a full ring only switch
  /// tasks.
  size_t worthwhile(size_t rest) const { return std::min(rest, memory_.size() / 2); }
  uint64_t consumed() const;  ///< where the slowest reader is

 private:
  std::span<std::byte> memory_;
  std::atomic<uint64_t>* head_ = nullptr;
  std::vector<std::atomic<uint64_t>*> tails_;
  uint64_t at_ = 0;       // as *head_
  uint64_t slowest_ = 0;  // where the slowest reader was when the writer last looked
};

/// A reader's end. It looks at the writer's position only when it has read what it saw there last, and tells its own now and
/// then: each look moves a cache line between cores.
class RingReader {
 public:
  RingReader() = default;
  RingReader(std::span<const std::byte> memory, const std::atomic<uint64_t>* head, std::atomic<uint64_t>* tail)
      : memory_(memory), head_(head), tail_(tail), at_(tail->load()), seen_(at_), told_(at_) {
    assert(std::has_single_bit(memory.size()));
  }

  bool readable() {
    if (seen_ == at_) seen_ = head_->load(std::memory_order_acquire);
    return seen_ != at_;
  }
  std::span<const std::byte> peek() const {  ///< of what readable() saw: one piece, to be read in place
    const size_t at = at_ & (memory_.size() - 1);
    return {memory_.data() + at, std::min<size_t>(seen_ - at_, memory_.size() - at)};
  }
  void consume(size_t size_bytes) {  ///< of what peek() gave; the writer may get to know later
    at_ += size_bytes;
    if (at_ - told_ >= memory_.size() / 8) tell();
  }
  void tell();  ///< the writer: what has been consumed is free

 private:
  std::span<const std::byte> memory_;
  const std::atomic<uint64_t>* head_ = nullptr;
  std::atomic<uint64_t>* tail_ = nullptr;
  uint64_t at_ = 0, seen_ = 0, told_ = 0;
};

/// A frame on the stream: its length as 8 bytes, then the bytes.
std::vector<std::byte> framed(std::span<const std::byte> payload);

/// Puts frames together from pieces. A length is believed only as far as bytes have come.
class FrameReader {
 public:
  /// Takes from the front of `bytes`, all or until a frame is whole, which it returns.
  /// @throws WireError  the length is impossible
  std::optional<std::vector<std::byte>> poll(std::span<const std::byte>& bytes);
  std::optional<std::vector<std::byte>> poll(RingReader& ring);  ///< likewise; the writer is told
  bool is_inside() const { return have_ > 0; }                   ///< of a frame

 private:
  std::byte header_[8];
  size_t have_ = 0;
  uint64_t length_ = 0;
  std::vector<std::byte> payload_;
};

}  // namespace tutti::detail
