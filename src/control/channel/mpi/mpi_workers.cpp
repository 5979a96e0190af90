#include "control/channel/mpi/mpi_workers.h"

#include <algorithm>

#include "control/channel/mpi/end_job.h"
#include "control/transfer/long_messages.h"
#include "control/worker/worker.h"
#include "core/exit_codes.h"

namespace tutti::detail {

MpiWorkers::MpiWorkers(std::unique_ptr<Segment> own, Exchange& exchange, MPI_Comm control, LeaderMail& mail, void* data,
                       std::function<void(Segment&)> ended)
    : SegmentWorkers(std::move(own)), data_(data) {
  if (layout().num_nodes() > 1) leader_ = std::make_unique<LeaderThread>(segment(), 0, control, mail);
  try {
    watch_.emplace(segment(), 0);
    worker0_ = std::make_unique<Worker0>(segment(), &exchange, data, [this, ended = std::move(ended)] { ended(segment()); });
  } catch (...) {
    if (leader_) leader_->stop_now();
    throw;
  }
}

void MpiWorkers::send(std::span<const std::byte> frame, const std::function<void()>& relax) {
  if (leader_) {
    constexpr size_t kPiece = size_t{256} * 1024;
    for (auto rest = frame; !rest.empty();) {
      while (!leader_->has_room()) {
        relax();
        wait(Clock::now() + std::chrono::milliseconds(50), kNone, [&] { return leader_->has_room(); });
      }
      const auto piece = rest.first(std::min(kPiece, rest.size()));
      leader_->push(piece);
      rest = rest.subspan(piece.size());
    }
  }
  SegmentWorkers::send(frame, relax);
}

std::optional<std::vector<std::byte>> MpiWorkers::try_receive() {
  if (auto reply = SegmentWorkers::try_receive()) return reply;
  return leader_ ? leader_->pop_reply() : std::nullopt;
}

void MpiWorkers::receive_far(int worker, void* data, size_t size_bytes, const std::function<void()>& relax) {
  receive_long(data_, worker, data, size_bytes, relax);  // after its answer: no other comes
}
void MpiWorkers::send_far(int worker, const void* data, size_t size_bytes, const std::function<void()>& relax) {
  send_long(data_, worker, data, size_bytes, relax);
  if (leader_) leader_->stay_awake();  // the acknowledgement comes at once
}

uint64_t MpiWorkers::finished() {
  const uint64_t here = SegmentWorkers::finished();
  return leader_ ? std::min(here, leader_->finished_below()) : here;
}

void MpiWorkers::check_alive() {
  SegmentWorkers::check_alive();
  if (leader_) leader_->check();
}

std::vector<WorkerState> MpiWorkers::look(Clock::time_point deadline, bool with_lines) {
  auto states = SegmentWorkers::look(deadline, with_lines);
  if (leader_)
    for (auto& state : leader_->look_below(deadline, with_lines)) states.push_back(std::move(state));
  return states;
}

void MpiWorkers::dump(const TraceDump& dump) {
  if (leader_) leader_->dump_below(dump);
  SegmentWorkers::dump(dump);
}

void MpiWorkers::give_up(std::string_view) noexcept { abort_job(kExitTimedOut); }

void MpiWorkers::close() noexcept {
  if (worker0_->joinable()) {
    worker0_->join();
    if (leader_) leader_->stop_after(segment().board().member(0).finished_seq.load());
  }
  leader_.reset();
  watch_.reset();
}

}  // namespace tutti::detail
