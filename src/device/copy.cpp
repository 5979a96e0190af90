#include "device/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "device/devices.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

constexpr size_t kPiece = StreamApi::kPieceBytes, kMostUnderWay = 4;

/// The pieces of one copy that are under way, in order.
class Pieces {
 public:
  Pieces(Streams& streams, Device device, Stream stream)
      : streams_(streams), api_(*device_api(device).streams()), device_(device), stream_(stream) {}
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  ~Pieces() {
    while (!all_.empty()) drop_first();
  }
  size_t count() const { return all_.size(); }
  char* add() {
    void* memory = api_.take_piece(device_.id);
    all_.push_back({static_cast<char*>(memory), nullptr});
    return all_.back().memory;
  }
  void started() try { all_.back().done = api_.record(device_.id, stream_); } catch (...) {
    all_.pop_back();  // nobody may use it again
    throw;
  }
  char* await_first() {
    streams_.await(device_, all_.front().done);
    return all_.front().memory;
  }
  void drop_first() noexcept {
    api_.give_back_piece(device_.id, all_.front().memory, all_.front().done);
    all_.pop_front();
  }

 private:
  struct Piece {
    char* memory;
    Event done;
  };
  Streams& streams_;
  StreamApi& api_;
  const Device device_;
  const Stream stream_;
  std::deque<Piece> all_;
};

/// Through pieces of pinned memory: what a device reads and writes by itself need not wait for anybody.
void stage_to_device(Streams& streams, Device device, Stream stream, char* to, const char* from, size_t size_bytes) {
  Pieces pieces(streams, device, stream);
  for (size_t at = 0; at < size_bytes; at += kPiece) {
    if (pieces.count() == kMostUnderWay) pieces.await_first(), pieces.drop_first();
    const size_t size = std::min(kPiece, size_bytes - at);
    char* piece = pieces.add();
    std::memcpy(piece, from + at, size);
    device_api(device).copy(to + at, piece, size, device, cpu(), stream);
    pieces.started();
  }
}

void stage_to_host(Streams& streams, Device device, Stream stream, char* to, const char* from, size_t size_bytes) {
  Pieces pieces(streams, device, stream);
  for (size_t asked = 0, at = 0; at < size_bytes; at += kPiece) {
    for (; asked < size_bytes && pieces.count() < kMostUnderWay; asked += kPiece) {
      device_api(device).copy(pieces.add(), from + asked, std::min(kPiece, size_bytes - asked), cpu(), device, stream);
      pieces.started();
    }
    std::memcpy(to + at, pieces.await_first(), std::min(kPiece, size_bytes - at));
    pieces.drop_first();
  }
}

}  // namespace

void copy(Streams& streams, Device to_device, void* to, Device from_device, const void* from, size_t size_bytes) {
  const bool writes = to_device.type != dl::kCPU, reads = from_device.type != dl::kCPU;
  const Device device = writes ? to_device : from_device;
  DeviceApi& api = device_api(device);
  if (writes && reads && to_device.type != from_device.type)
    throw UsageError(fmt::format("copy_from: from {} to {}, which are of two types; copy to the host in between",
                                 to_string(from_device), to_string(to_device)));
  if (api.streams() && reads && !writes) streams.finish();  // a failure is one of what was written, not of this copy
  const Stream stream = streams.current(device);
  if (!api.streams() || to_device == from_device) return api.copy(to, from, size_bytes, to_device, from_device, stream);
  if (!reads) return stage_to_device(streams, device, stream, static_cast<char*>(to), static_cast<const char*>(from), size_bytes);
  if (!writes) return stage_to_host(streams, device, stream, static_cast<char*>(to), static_cast<const char*>(from), size_bytes);
  const Stream source = streams.current(from_device);
  order(device, stream, from_device, source);
  api.copy(to, from, size_bytes, to_device, from_device, stream);
  order(from_device, source, device, stream);  // before `from` is freed or written again
}

}  // namespace tutti::detail
