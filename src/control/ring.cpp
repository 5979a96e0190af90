#include "control/ring.h"

#include <algorithm>
#include <cstring>

#include "core/wire.h"

namespace tutti {
namespace {

constexpr uint64_t kMostFrame = uint64_t{1} << 40;
constexpr size_t kGrowth = size_t{1} << 20;  // memory for a frame is taken as its bytes come

}  // namespace

size_t ByteRing::space(size_t enough) {
  const uint64_t head = head_->load(std::memory_order_relaxed);
  const uint64_t used = head - slowest_;
  if (used <= memory_.size() && memory_.size() - used >= enough) return memory_.size() - used;
  slowest_ = head;
  for (auto* tail : tails_) slowest_ = std::min(slowest_, tail->load(std::memory_order_acquire));
  return memory_.size() - (head - slowest_);
}

size_t ByteRing::write_some(std::span<const std::byte> bytes) {
  const uint64_t head = head_->load(std::memory_order_relaxed);
  const size_t n = std::min(bytes.size(), space(bytes.size()));
  const size_t at = head % memory_.size(), first = std::min(n, memory_.size() - at);
  if (n == 0) return 0;
  std::memcpy(memory_.data() + at, bytes.data(), first);
  std::memcpy(memory_.data(), bytes.data() + first, n - first);
  head_->store(head + n, std::memory_order_seq_cst);
  return n;
}

size_t ByteRing::read_some(size_t reader, std::span<std::byte> bytes) {
  const uint64_t tail = tails_[reader]->load(std::memory_order_relaxed);
  const size_t n = std::min<size_t>(bytes.size(), head_->load(std::memory_order_acquire) - tail);
  if (n == 0) return 0;
  const size_t at = tail % memory_.size(), first = std::min(n, memory_.size() - at);
  std::memcpy(bytes.data(), memory_.data() + at, first);
  std::memcpy(bytes.data() + first, memory_.data(), n - first);
  tails_[reader]->store(tail + n, std::memory_order_seq_cst);
  return n;
}

std::vector<std::byte> framed(std::span<const std::byte> payload) {
  Writer out;
  out.put(static_cast<uint64_t>(payload.size()));
  out.raw(payload.data(), payload.size());
  return std::move(out.bytes());
}

std::optional<std::vector<std::byte>> FrameReader::poll(const std::function<size_t(std::span<std::byte>)>& read) {
  for (;;) {
    if (have_ < sizeof header_) {
      const size_t n = read(std::span(header_).subspan(have_));
      if (n == 0) return std::nullopt;
      have_ += n;
      if (have_ < sizeof header_) continue;
      std::memcpy(&length_, header_, sizeof length_);
      if (length_ > kMostFrame) throw WireError("a frame of impossible length");
      payload_.clear();
    }
    if (payload_.size() < length_) {
      const size_t before = payload_.size();
      payload_.resize(static_cast<size_t>(std::min<uint64_t>(length_, before + kGrowth)));
      const size_t n = read(std::span(payload_).subspan(before));
      payload_.resize(before + n);
      if (payload_.size() < length_) {
        if (n == 0) return std::nullopt;
        continue;
      }
    }
    have_ = 0;
    return std::move(payload_);
  }
}

}  // namespace tutti
