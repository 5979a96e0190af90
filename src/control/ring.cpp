#include "control/ring.h"

#include <algorithm>
#include <cstring>

#include "core/wire.h"

namespace tutti {
namespace {

constexpr uint64_t kMostFrame = uint64_t{1} << 40;
constexpr size_t kGrowth = size_t{1} << 20;  // memory for a frame is taken as its bytes come

}  // namespace

size_t RingWriter::space(size_t enough) {
  const uint64_t used = at_ - slowest_;
  if (used <= memory_.size() && memory_.size() - used >= enough) return memory_.size() - used;
  slowest_ = consumed();
  return memory_.size() - (at_ - slowest_);
}

uint64_t RingWriter::consumed() const {
  uint64_t least = head_->load(std::memory_order_relaxed);
  for (auto* tail : tails_) least = std::min(least, tail->load(std::memory_order_seq_cst));
  return least;
}

size_t RingWriter::write_some(std::span<const std::byte> bytes) {
  const size_t n = std::min(bytes.size(), space(bytes.size()));
  const size_t at = at_ & (memory_.size() - 1), first = std::min(n, memory_.size() - at);
  if (n == 0) return 0;
  std::memcpy(memory_.data() + at, bytes.data(), first);
  if (n > first) std::memcpy(memory_.data(), bytes.data() + first, n - first);
  head_->store(at_ += n, std::memory_order_release);
  return n;
}

void RingReader::tell() {
  if (told_ != at_) tail_->store(told_ = at_, std::memory_order_release);
}

size_t RingReader::read_some(std::span<std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size() && readable()) {
    const auto piece = peek().first(std::min(peek().size(), bytes.size() - done));
    std::memcpy(bytes.data() + done, piece.data(), piece.size());
    done += piece.size();
    consume(piece.size());
  }
  tell();
  return done;
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
