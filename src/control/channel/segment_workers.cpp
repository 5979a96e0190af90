#include "control/channel/segment_workers.h"

#include <cstring>

#include "control/transfer/staged_tensor.h"
#include "control/watch/source_line.h"
#include "core/interpreter.h"

namespace tutti::detail {

SegmentWorkers::SegmentWorkers(std::unique_ptr<Segment> segment)
    : segment_(std::move(segment)),
      policy_(segment_->wait_policy()),
      commands_(segment_->commands()),
      frames_(segment_->workers().size()),
      peers_([this](int worker) { return static_cast<pid_t>(segment_->slot(worker).pid.load()); }) {
  for (int32_t worker : segment_->workers()) replies_.push_back(segment_->reply_reader(worker));
}

void SegmentWorkers::send(std::span<const std::byte> frame, const std::function<void()>& relax) {
  for (auto rest = frame;;) {
    rest = rest.subspan(commands_.write_some(rest));
    segment_->header().commands.ring_ordered();
    worker0_->issued();
    if (rest.empty()) return;
    relax();
    const size_t enough = commands_.worthwhile(rest.size());
    wait(Clock::now() + std::chrono::milliseconds(50), kNone, [&] { return commands_.space(enough) >= enough; });
  }
}

std::optional<std::vector<std::byte>> SegmentWorkers::try_receive() {
  if (auto reply = worker0_->pop_reply()) return reply;
  for (size_t tried = 0; tried < replies_.size(); ++tried, next_ = (next_ + 1) % replies_.size()) {
    if (!replies_[next_].readable()) continue;
    auto frame = frames_[next_].poll(replies_[next_]);
    segment_->slot(segment_->workers()[next_]).reply_space.ring();
    if (frame) return frame;
  }
  return std::nullopt;
}

Tensor SegmentWorkers::take(int worker, const Offer& offer, const std::function<void()>& relax) {
  const char* near =
      offer.place.in_reach() ? peers_.map(worker, offer.place, 0, static_cast<int64_t>(offer.size_bytes())) : nullptr;
  Tensor copy;
  try {
    copy = Tensor::empty(offer.shape, offer.dtype);
  } catch (const SystemError&) {  // the worker sends all the same
    if (!near) receive_far(worker, nullptr, offer.size_bytes(), relax);
    throw;
  }
  if (near) std::memcpy(copy.data(), near, offer.size_bytes());
  else receive_far(worker, copy.data(), offer.size_bytes(), relax);
  segment_->check_not_abandoned();  // then the worker may have gone on meanwhile
  return copy;
}

void SegmentWorkers::give(int worker, const Offer& offer, const Tensor& from, const std::function<void()>& relax) {
  if (!offer.place.in_reach()) return send_far(worker, from.data(), offer.size_bytes(), relax);
  std::memcpy(peers_.map(worker, offer.place, 0, static_cast<int64_t>(offer.size_bytes())), from.data(), offer.size_bytes());
}

void SegmentWorkers::receive_far(int worker, void* data, size_t size_bytes, const std::function<void()>& relax) {
  receive_staged(*segment_, worker, Side::kController, data, size_bytes, relax);
}
void SegmentWorkers::send_far(int worker, const void* data, size_t size_bytes, const std::function<void()>& relax) {
  send_staged(*segment_, worker, Side::kController, data, size_bytes, relax);
}

void SegmentWorkers::settle(int worker, uint64_t seq) noexcept {
  if (!segment_->has(worker)) return;  // it waits for MPI
  segment_->slot(worker).moved_seq.store(seq, std::memory_order_seq_cst);
  segment_->slot(worker).reply_space.ring();
}

bool SegmentWorkers::wait(Clock::time_point deadline, uint64_t awaited, const std::function<bool()>& ready) {
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

std::vector<WorkerState> SegmentWorkers::look(Clock::time_point, bool with_lines) {
  auto states = look_at(*segment_);
  if (with_lines) add_source_lines(states, *segment_);
  return states;
}

}  // namespace tutti::detail
