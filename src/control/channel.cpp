#include "control/channel.h"

#include "core/interpreter.h"

namespace tutti {

SegmentChannel::SegmentChannel(std::unique_ptr<Segment> segment)
    : segment_(std::move(segment)),
      policy_(segment_->wait_policy()),
      commands_(segment_->commands()),
      frames_(segment_->workers().size()) {
  for (int32_t worker : segment_->workers()) replies_.push_back(segment_->reply_reader(worker));
}

void SegmentChannel::send(std::span<const std::byte> frame, const std::function<void()>& relax) {
  for (auto rest = frame;;) {
    rest = rest.subspan(commands_.write_some(rest));
    segment_->header().commands.ring_ordered();
    worker0_->issued();
    if (rest.empty()) return;
    relax();
    wait(Clock::now() + std::chrono::milliseconds(50), kNone, [&] { return commands_.space(1) > 0; });
  }
}

std::optional<std::vector<std::byte>> SegmentChannel::try_receive() {
  if (auto reply = worker0_->pop_reply()) return reply;
  for (size_t tried = 0; tried < replies_.size(); ++tried, next_ = (next_ + 1) % replies_.size()) {
    if (!replies_[next_].readable()) continue;
    auto frame = frames_[next_].poll(replies_[next_]);
    segment_->slot(segment_->workers()[next_]).reply_space.ring();
    if (frame) return frame;
  }
  return std::nullopt;
}

bool SegmentChannel::wait(Clock::time_point deadline, uint64_t awaited, const std::function<bool()>& ready) {
  const WithoutInterpreter without_interpreter;
  const Worker0::Waiting waiting(*worker0_, awaited != kNone);
  if (segment_->header().nappers.load(std::memory_order_seq_cst) != 0) segment_->header().commands.wake();
  const auto look = [&] {
    for (;;) {
      const auto left = worker0_->help();
      if (ready()) return true;
      if (left == Worker0::Left::kTheThread) {
        yield_cpu();
        if (ready()) return true;
      }
      if (left != Worker0::Left::kMore || Clock::now() >= deadline) return false;
    }
  };
  return wait_until(segment_->header().controller, policy_, deadline, look, [&] { segment_->header().awaited.store(awaited); });
}

}  // namespace tutti
