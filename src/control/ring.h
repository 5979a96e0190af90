#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

/// A byte stream in shared memory: one writer, any number of readers, each of which sees every byte. Positions count
/// bytes for ever; a stream never breaks at a frame that is larger than the ring. Its size is a power of two. This is the writer's end.
class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(std::span<std::byte> memory, std::atomic<uint64_t>* head, std::vector<std::atomic<uint64_t>*> tails)
      : memory_(memory), head_(head), tails_(std::move(tails)), at_(head->load()) {
    assert(std::has_single_bit(memory.size()));
  }

  size_t space(size_t enough);                          ///< writable now. Looks closely only if it must
  size_t write_some(std::span<const std::byte> bytes);  ///< how many were taken
  uint64_t consumed() const;                            ///< where the slowest reader is

 private:
  std::span<std::byte> memory_;
  std::atomic<uint64_t>* head_ = nullptr;
  std::vector<std::atomic<uint64_t>*> tails_;
  uint64_t at_ = 0;       // as *head_
  uint64_t slowest_ = 0;  // where the slowest reader was when the writer last looked
};

/// A reader's end. It looks at the writer's position only when it has read what it saw there last, and tells its own now and then:
/// each look moves a cache line between cores.
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
  std::span<const std::byte> peek() const {        ///< of what readable() saw: one piece, to be read in place
    const size_t at = at_ & (memory_.size() - 1);
    return {memory_.data() + at, std::min<size_t>(seen_ - at_, memory_.size() - at)};
  }
  void consume(size_t size_bytes) {                ///< of what peek() gave; the writer may get to know later
    at_ += size_bytes;
    if (at_ - told_ >= memory_.size() / 8) tell();
  }
  void tell();                                     ///< the writer: what has been consumed is free
  size_t read_some(std::span<std::byte> bytes);    ///< how many were there; told

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
  /// Takes what `read` (fills a span, returns how much) has; a frame when one is whole.
  /// @throws WireError  the length is impossible
  std::optional<std::vector<std::byte>> poll(const std::function<size_t(std::span<std::byte>)>& read);
  bool is_inside() const { return have_ > 0; }  ///< of a frame
  std::optional<std::vector<std::byte>> poll(RingReader& ring) {
    return poll([&](std::span<std::byte> to) { return ring.read_some(to); });
  }

 private:
  std::byte header_[8];
  size_t have_ = 0;
  uint64_t length_ = 0;
  std::vector<std::byte> payload_;
};

}  // namespace tutti
