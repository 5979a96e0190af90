#pragma once

#include <memory>

#include "control/channel/mpi/leader_thread.h"
#include "control/channel/mpi/peer_watch.h"
#include "control/channel/segment_workers.h"
#include "control/wire/exchange.h"

namespace tutti::detail {

/// Workers are the ranks of an MPI job. On the controller's node: its ring; other nodes are reached through their leaders.
class MpiWorkers final : public SegmentWorkers {
 public:
  /// `data`: MPI_Comm* for data. `ended` runs on worker 0's thread after its last command.
  MpiWorkers(std::unique_ptr<Segment> segment, Exchange& exchange, MPI_Comm control, LeaderMail& mail, void* data,
             std::function<void(Segment&)> ended);
  ~MpiWorkers() override { close(); }
  void close() noexcept override;
  void give_up(std::string_view why) noexcept override;

 private:
  bool has_room(size_t bytes) override { return SegmentWorkers::has_room(bytes) && (!leader_ || leader_->has_room()); }
  void send(std::span<const std::byte> frame, const std::function<void()>& relax) override;
  std::optional<std::vector<std::byte>> try_receive() override;
  uint64_t finished() override;
  void check_alive() override;
  std::vector<WorkerState> look(Clock::time_point deadline, bool with_lines) override;
  void dump(const TraceDump& dump) override;
  void receive_far(int worker, void* data, size_t size_bytes, const std::function<void()>& relax) override;
  void send_far(int worker, const void* data, size_t size_bytes, const std::function<void()>& relax) override;
  void* data_;
  std::unique_ptr<LeaderThread> leader_;  // when there are other nodes
  std::optional<PeerWatch> watch_;
};

}  // namespace tutti::detail
