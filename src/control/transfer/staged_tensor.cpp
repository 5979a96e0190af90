#include "control/transfer/staged_tensor.h"

#include <cstring>

namespace tutti::detail {
namespace {

/// The turns are even while the sender's, odd while the receiver's; so they are even between tensors.
template <class Move>
void in_turns(Segment& segment, int worker, Side side, bool sends, size_t size_bytes, const std::function<void()>& relax,
              Move move) {
  WorkerSlot& slot = segment.slot(worker);
  Doorbell& of_worker = slot.reply_space;
  Doorbell& of_controller = segment.header().controller;
  const auto is_ours = [&] { return slot.staging_turns.load(std::memory_order_seq_cst) % 2 == (sends ? 0 : 1); };
  for (size_t at = 0; at < size_bytes; at += Segment::kStagingBytes) {
    Doorbell& ours = side == Side::kWorker ? of_worker : of_controller;
    while (!wait_until(ours, segment.wait_policy(), Clock::now() + std::chrono::milliseconds(50), is_ours)) relax();
    move(at, segment.staging(worker), std::min(Segment::kStagingBytes, size_bytes - at));
    slot.staging_turns.fetch_add(1, std::memory_order_seq_cst);
    (side == Side::kWorker ? of_controller : of_worker).ring();
  }
}

}  // namespace

void send_staged(Segment& segment, int worker, Side side, const void* data, size_t size_bytes,
                 const std::function<void()>& relax) {
  in_turns(segment, worker, side, true, size_bytes, relax, [&](size_t at, std::byte* staging, size_t size) {
    std::memcpy(staging, static_cast<const std::byte*>(data) + at, size);
  });
}

void receive_staged(Segment& segment, int worker, Side side, void* data, size_t size_bytes, const std::function<void()>& relax) {
  in_turns(segment, worker, side, false, size_bytes, relax, [&](size_t at, const std::byte* staging, size_t size) {
    if (data) std::memcpy(static_cast<std::byte*>(data) + at, staging, size);
  });
}

}  // namespace tutti::detail
