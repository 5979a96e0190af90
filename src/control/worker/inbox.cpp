#include "control/worker/inbox.h"

#include <cstring>
#include <utility>

namespace tutti::detail {
namespace {

constexpr uint64_t kShort = 2000;  // ticks, somewhat less than a microsecond
constexpr uint64_t kLong = 100'000;
constexpr uint32_t kDense = 16, kFlood = 500;  // calls that nobody waited for, without a long wait between them
constexpr auto kFloodNap = std::chrono::microseconds(200);
constexpr int kNaps = 4;

}  // namespace

Inbox::Inbox(Segment& segment, int worker)
    : segment_(segment), policy_(segment.wait_policy()), commands_(segment.commands(worker)) {}

/// Until one is fetched or the session is abandoned. In a flood of commands each look takes the controller's cache line away, and
/// staying awake a core that others could use: let some more come.
void Inbox::await() {
  Doorbell& bell = segment_.header().commands;
  const uint64_t since = ticks();
  if (calls_in_a_row_ > kFlood && policy_.spin < WaitPolicy().spin) {
    auto& nappers = segment_.header().nappers;
    nappers.fetch_add(1, std::memory_order_seq_cst);  // before the looks below: a controller that begins to wait wakes us
    for (int naps = 0; naps < kNaps && !is_due() && !segment_.abandoned(); ++naps) {
      const uint32_t seen = bell.value.load(std::memory_order_acquire);
      if (!is_due()) bell.sleep(seen, kFloodNap);
    }
    nappers.fetch_sub(1, std::memory_order_seq_cst);
    if (segment_.abandoned() || fetch()) return;
  } else if (calls_in_a_row_ > kDense) {
    while (ticks() - since < kShort) pause_cpu();
  }
  while (!wait_until(bell, policy_, Clock::now() + std::chrono::hours(1), [&] { return segment_.abandoned() || fetch(); })) {
  }
  if (ticks() - since > kLong) calls_in_a_row_ = 0;
}

bool Inbox::read() {
  Doorbell& controller = segment_.header().controller;
  if (!commands_.readable()) {
    commands_.tell();
    if (std::exchange(unrung_, 0) > 0) controller.ring_ordered();
    return false;
  }
  if (!frames_.is_inside()) {  // mostly it is there in one piece
    const auto bytes = commands_.peek();
    uint64_t length = 0;
    if (bytes.size() >= sizeof length) std::memcpy(&length, bytes.data(), sizeof length);
    if (bytes.size() >= sizeof length && length <= bytes.size() - sizeof length) {
      decode(bytes.subspan(sizeof length, length));
      commands_.consume(sizeof length + length);
      unrung_ += sizeof length + length;
      if (controller.sleepers.load(std::memory_order_relaxed) != 0) commands_.tell();  // it may look by itself
      if (unrung_ > Segment::kRingBytes / 8) {
        unrung_ = 0;
        commands_.tell();
        controller.ring_ordered();
      }
      return true;
    }
  }
  const auto frame = frames_.poll(commands_);
  controller.ring();  // there is space
  if (frame) decode(*frame);
  return frame.has_value();
}

/// A body that can't be read, or has no room here, is this command's failure.
void Inbox::decode(std::span<const std::byte> frame) {
  command_.clear();
  malformed_.clear();
  try {
    decode_command(frame, command_);
  } catch (const std::exception& error) {
    if (command_.seq == 0) throw;
    malformed_ = error.what();
  }
}

}  // namespace tutti::detail
