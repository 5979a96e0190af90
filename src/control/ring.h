#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

/// A byte stream in shared memory: one writer, any number of readers, each of which sees every byte. Positions count
/// bytes for ever; a stream never breaks at a frame that is larger than the ring.
class ByteRing {
 public:
  ByteRing() = default;
  ByteRing(std::span<std::byte> memory, std::atomic<uint64_t>* head, std::vector<std::atomic<uint64_t>*> tails)
      : memory_(memory), head_(head), tails_(std::move(tails)) {}

  size_t space(size_t enough);                                          ///< writable now; the writer's. Looks closely only if it must
  size_t write_some(std::span<const std::byte> bytes);                  ///< how many were taken
  size_t read_some(size_t reader, std::span<std::byte> bytes);          ///< how many were there
  bool readable(size_t reader) const {
    return head_->load(std::memory_order_seq_cst) != tails_[reader]->load(std::memory_order_relaxed);
  }

 private:
  std::span<std::byte> memory_;
  std::atomic<uint64_t>* head_ = nullptr;
  std::vector<std::atomic<uint64_t>*> tails_;
  uint64_t slowest_ = 0;  // where the slowest reader was when the writer last looked
};

/// A frame on the stream: its length as 8 bytes, then the bytes.
std::vector<std::byte> framed(std::span<const std::byte> payload);

/// Puts frames together from pieces. A length is believed only as far as bytes have come.
class FrameReader {
 public:
  /// Takes what `read` (fills a span, returns how much) has; a frame when one is whole.
  /// @throws WireError  the length is impossible
  std::optional<std::vector<std::byte>> poll(const std::function<size_t(std::span<std::byte>)>& read);
  std::optional<std::vector<std::byte>> poll(ByteRing& ring, size_t reader) {
    return poll([&](std::span<std::byte> to) { return ring.read_some(reader, to); });
  }

 private:
  std::byte header_[8];
  size_t have_ = 0;
  uint64_t length_ = 0;
  std::vector<std::byte> payload_;
};

}  // namespace tutti
