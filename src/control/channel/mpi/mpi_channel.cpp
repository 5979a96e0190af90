#include "control/channel/mpi/mpi_channel.h"

#include <algorithm>

#include "control/channel/mpi/end_job.h"
#include "control/channel/mpi/long_messages.h"
#include "control/exit_codes.h"
#include "control/worker/worker.h"

namespace tutti {

MpiChannel::MpiChannel(std::unique_ptr<Segment> own, Exchange& exchange, MPI_Comm control, LeaderMail& mail, void* data,
                       std::function<void(Segment&)> ended)
    : SegmentChannel(std::move(own)), data_(data) {
  if (layout().num_nodes() > 1) leader_ = std::make_unique<LeaderThread>(segment(), 0, control, mail);
  try {
    watch_.emplace(segment(), 0);
    worker0_ = std::make_unique<Worker0>(segment(), &exchange, data, [this, ended = std::move(ended)] { ended(segment()); });
  } catch (...) {
    if (leader_) leader_->stop_now();
    throw;
  }
}

void MpiChannel::send(std::span<const std::byte> frame, const std::function<void()>& relax) {
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
  SegmentChannel::send(frame, relax);
}

std::optional<std::vector<std::byte>> MpiChannel::try_receive() {
  if (auto reply = SegmentChannel::try_receive()) return reply;
  return leader_ ? leader_->pop_reply() : std::nullopt;
}

void MpiChannel::receive_far(int worker, void* data, size_t size_bytes, const std::function<void()>& relax) {
  receive_long(data_, worker, data, size_bytes, relax);  // after its answer: no other comes
}
void MpiChannel::send_far(int worker, const void* data, size_t size_bytes, const std::function<void()>& relax) {
  send_long(data_, worker, data, size_bytes, relax);
  if (leader_) leader_->stay_awake();  // the acknowledgement comes at once
}

uint64_t MpiChannel::finished() {
  const uint64_t here = SegmentChannel::finished();
  return leader_ ? std::min(here, leader_->finished_below()) : here;
}

void MpiChannel::check_alive() {
  SegmentChannel::check_alive();
  if (leader_) leader_->check();
}

std::vector<WorkerState> MpiChannel::look(Clock::time_point deadline, bool with_lines) {
  auto states = SegmentChannel::look(deadline, with_lines);
  if (leader_)
    for (auto& state : leader_->look_below(deadline, with_lines)) states.push_back(std::move(state));
  return states;
}

void MpiChannel::dump(const TraceDump& dump) {
  if (leader_) leader_->dump_below(dump);
  SegmentChannel::dump(dump);
}

void MpiChannel::give_up(std::string_view) noexcept { abort_job(kExitTimedOut); }

void MpiChannel::close() noexcept {
  if (worker0_->joinable()) {
    worker0_->join();
    if (leader_) leader_->stop_after(segment().board().member(0).finished_seq.load());
  }
  leader_.reset();
  watch_.reset();
}

}  // namespace tutti
