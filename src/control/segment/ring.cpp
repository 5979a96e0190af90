#include "control/segment/ring.h"

#include <algorithm>
#include <cstring>

#include "core/wire.h"

namespace tutti::detail {
namespace {

constexpr uint64_t kMostFrame = uint64_t{1} << 40;
constexpr size_t kGrowth = 16, kFirst = size_t{1} << 20;  // memory for a frame: so much, then so many times what has come
constexpr size_t kRingPiece = size_t{64} << 10;           // one end reads while the other writes the next

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
  for (size_t done = 0; done < n;) {
    const size_t at = at_ & (memory_.size() - 1), piece = std::min({n - done, memory_.size() - at, kRingPiece});
    std::memcpy(memory_.data() + at, bytes.data() + done, piece);
    head_->store(at_ += piece, std::memory_order_release);  // the bytes are there for all who see it
    done += piece;
  }
  return n;
}

/// Release: our reads come before the writer may write there again.
void RingReader::tell() {
  if (told_ != at_) tail_->store(told_ = at_, std::memory_order_release);
}

std::vector<std::byte> framed(std::span<const std::byte> payload) {
  Writer out;
  out.put(static_cast<uint64_t>(payload.size()));
  out.raw(payload.data(), payload.size());
  return std::move(out.bytes());
}

std::optional<std::vector<std::byte>> FrameReader::poll(std::span<const std::byte>& bytes) {
  const auto take = [&](uint64_t most) {
    const auto piece = bytes.first(static_cast<size_t>(std::min<uint64_t>(most, bytes.size())));
    bytes = bytes.subspan(piece.size());
    return piece;
  };
  if (have_ < sizeof header_) {
    const auto piece = take(sizeof header_ - have_);
    std::copy(piece.begin(), piece.end(), header_ + have_);
    have_ += piece.size();
    if (have_ < sizeof header_) return std::nullopt;
    std::memcpy(&length_, header_, sizeof length_);
    if (length_ > kMostFrame) throw WireError("a frame of impossible length");
    payload_ = {};
  }
  const auto piece = take(length_ - payload_.size());
  if (const size_t size = payload_.size() + piece.size(); size > payload_.capacity())
    payload_.reserve(static_cast<size_t>(std::min<uint64_t>(length_, kFirst + kGrowth * size)));
  payload_.insert(payload_.end(), piece.begin(), piece.end());
  if (payload_.size() < length_) return std::nullopt;
  have_ = 0;
  return std::move(payload_);
}

std::optional<std::vector<std::byte>> FrameReader::poll(RingReader& ring) {
  std::optional<std::vector<std::byte>> frame;
  while (!frame && ring.readable()) {
    const auto piece = ring.peek().first(std::min(ring.peek().size(), kRingPiece));
    auto rest = piece;
    frame = poll(rest);
    ring.consume(piece.size() - rest.size());
  }
  ring.tell();
  return frame;
}

}  // namespace tutti::detail
