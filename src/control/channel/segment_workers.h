#pragma once

#include <memory>
#include <vector>

#include "collective/node/peer_memory.h"
#include "control/channel/workers.h"
#include "control/segment/segment.h"
#include "control/worker/worker0.h"
#include "core/doorbell.h"

namespace tutti::detail {

/// What all back ends do on the controller's own node.
class SegmentWorkers : public Workers, protected Channel, private Transfers, private Inspector {
 public:
  explicit SegmentWorkers(std::unique_ptr<Segment> segment);
  const Layout& layout() const override { return segment_->layout(); }
  Channel& channel() final { return *this; }
  Transfers& transfers() final { return *this; }
  Inspector& inspector() final { return *this; }

 protected:
  bool has_room(size_t bytes) override { return commands_.space(bytes) >= bytes; }
  void send(std::span<const std::byte> frame, const std::function<void()>& relax) override;
  std::optional<std::vector<std::byte>> try_receive() override;
  uint64_t finished() override { return segment_->least_finished(); }
  bool wait(Clock::time_point deadline, uint64_t awaited, const std::function<bool()>& ready) final;
  void check_alive() override { segment_->check_not_abandoned(); }
  std::vector<WorkerState> look(Clock::time_point deadline, bool with_lines) override;
  void dump(const TraceDump& dump) override { write_traces(*segment_, dump); }
  Segment& segment() { return *segment_; }

 private:
  Tensor take(int worker, const Offer& offer, const std::function<void()>& relax) final;
  void give(int worker, const Offer& offer, const Tensor& from, const std::function<void()>& relax) final;
  void settle(int worker, uint64_t seq) noexcept final;
  virtual void receive_far(int worker, void* data, size_t size_bytes, const std::function<void()>& relax);
  virtual void send_far(int worker, const void* data, size_t size_bytes, const std::function<void()>& relax);
  std::unique_ptr<Segment> segment_;
  WaitPolicy policy_;
  RingWriter commands_;
  std::vector<RingReader> replies_;
  std::vector<FrameReader> frames_;
  size_t next_ = 0;
  PeerMemory peers_;

 protected:
  std::unique_ptr<Worker0> worker0_;  // joined by close()
};

}  // namespace tutti::detail
