#include "control/channel.h"

namespace tutti {

SegmentChannel::SegmentChannel(std::unique_ptr<Segment> segment)
    : segment_(std::move(segment)),
      policy_(wait_policy(segment_->layout().machine_ranks)),
      commands_(segment_->commands()),
      frames_(segment_->workers().size()) {
  for (int32_t worker : segment_->workers()) replies_.push_back(segment_->replies(worker));
}

void SegmentChannel::send(std::span<const std::byte> command, const std::function<void()>& relax) {
  const auto bytes = framed(command);
  std::span<const std::byte> rest(bytes);
  for (;;) {
    rest = rest.subspan(commands_.write_some(rest));
    segment_->header().commands.ring();
    if (rest.empty()) return;
    relax();
    wait(Clock::now() + std::chrono::milliseconds(50), [&] { return commands_.space(1) > 0; });
  }
}

std::optional<std::vector<std::byte>> SegmentChannel::try_receive() {
  for (size_t tried = 0; tried < replies_.size(); ++tried, next_ = (next_ + 1) % replies_.size()) {
    if (!replies_[next_].readable(0)) continue;
    auto frame = frames_[next_].poll(replies_[next_], 0);
    segment_->slot(segment_->workers()[next_]).reply_space.ring();
    if (frame) return frame;
  }
  return std::nullopt;
}

bool SegmentChannel::wait(Clock::time_point deadline, const std::function<bool()>& ready) {
  return wait_until(segment_->header().controller, policy_, deadline, ready);
}

}  // namespace tutti
