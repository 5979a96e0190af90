#include "control/channel/mpi/leader.h"

#include <algorithm>

#include "agreement/board_view.h"
#include "collective/mpi/mpi_handles.h"
#include "control/channel/mpi/tags.h"
#include "control/watch/source_line.h"

namespace tutti::detail {
namespace {

constexpr size_t kMostSending = 64;  // messages under way before a leader holds back

}  // namespace

Leader::Leader(Segment& segment, int node, MPI_Comm control, LeaderMail& mail, Now now)
    : segment_(segment),
      node_(node),
      rank_(segment.workers().front()),
      is_root_(node == 0),
      control_(control),
      mail_(mail),
      now_(now),
      traces_(segment),
      ring_(segment.commands()),
      arrival_versions_(segment.workers().size(), 0),
      question_versions_(segment.workers().size(), 0),
      asking_(segment.workers().size()) {
  // a binomial tree over the nodes: the parent clears the lowest bit
  const int num_nodes = segment.layout().num_nodes();
  if (!is_root_) parent_ = segment.layout().leader_of(node & (node - 1));
  for (int bit = 1; bit < num_nodes && (node & bit) == 0; bit <<= 1)
    if ((node | bit) < num_nodes) children_.push_back({.rank = segment.layout().leader_of(node | bit)});
  std::vector<int> neighbours;
  if (!is_root_) neighbours.push_back(parent_);
  for (const Child& child : children_) neighbours.push_back(child.rank);
  heartbeat_.emplace(std::chrono::seconds(segment.layout().heartbeat), std::move(neighbours), now_());
  for (int32_t worker : segment.workers()) replies_.push_back(segment.reply_reader(worker));
  if (!is_root_) return;
  verdicts_ = std::make_unique<Verdicts>();
  questions_ = std::make_unique<Questions>();
}

void Leader::push(std::span<const std::byte> framed_commands) {
  {
    std::lock_guard lock(mutex_);
    outgoing_.insert(outgoing_.end(), framed_commands.begin(), framed_commands.end());
  }
  sent_ += framed_commands.size();
  segment_.header().controller.ring();
}

std::optional<std::vector<std::byte>> Leader::pop_reply() {
  std::lock_guard lock(mutex_);
  if (inbox_.empty()) return std::nullopt;
  auto reply = std::move(inbox_.front());
  inbox_.pop_front();
  return reply;
}

bool Leader::has_reply() {
  std::lock_guard lock(mutex_);
  return !inbox_.empty();
}

bool Leader::step() {
  bool worked = receive();
  beat();
  worked |= forward_commands();
  worked |= forward_progress();
  worked |= forward_arrivals();
  worked |= answer_watches();
  worked |= hand_down_verdicts();
  worked |= forward_questions();
  worked |= answer_questions();
  worked |= hand_down_answers();
  worked |= pass_on_looks();
  worked |= pass_on_device_loss();
  worked |= look_for_deadlocks();
  worked |= complete_sends();
  return worked;
}

bool Leader::has_passed_on(uint64_t seq) {
  if (segment_.least_finished() < seq || !sending_.empty() || !receiving_.empty()) return false;
  for (const Child& child : children_)
    if (child.finished < seq) return false;
  return is_root_ || sent_finished_ >= seq;
}

bool Leader::receive() {
  bool worked = false;
  for (int i = 0; i < 16; ++i) {  // then let the other duties have a turn
    int flag = 0, size = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, static_cast<int>(Tag::kLeader), control_, &flag, &status), "MPI_Iprobe");
    if (!flag) break;
    ++mail_.received;
    MPI_Get_count(&status, MPI_BYTE, &size);
    heartbeat_->heard(status.MPI_SOURCE, now_());
    receiving_.push_back({status.MPI_SOURCE, std::vector<std::byte>(static_cast<size_t>(size)), MPI_REQUEST_NULL});
    Receiving& r = receiving_.back();  // nobody else receives this tag, so it is the one that was probed
    check_mpi(MPI_Irecv(r.bytes.data(), size, MPI_BYTE, status.MPI_SOURCE, static_cast<int>(Tag::kLeader), control_, &r.request),
              "MPI_Irecv");
  }
  // a large one comes in its own time, or never when its host is lost; what the same rank sent later waits for it
  std::set<int> waited_for;
  for (auto it = receiving_.begin(); it != receiving_.end();) {
    int flag = 0;
    if (!waited_for.contains(it->from)) check_mpi(MPI_Test(&it->request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (!flag) {
      waited_for.insert(it->from);
      ++it;
      continue;
    }
    const Receiving received = std::move(*it);
    it = receiving_.erase(it);
    worked |= !received.bytes.empty() && static_cast<Kind>(received.bytes.front()) != Kind::kBeat;
    handle(received.from, received.bytes);
  }
  return worked;
}

void Leader::handle(int from, std::span<const std::byte> message) {
  Reader in(message);
  const auto kind = in.get<Kind>();
  if (in.get<uint64_t>() != segment_.layout().session) return;  // of an earlier session
  heartbeat_->heard(from, now_());
  const auto body = message.subspan(sizeof(Kind) + sizeof(uint64_t));
  switch (kind) {
    case Kind::kCommands:
      for (const Child& child : children_) send(child.rank, Kind::kCommands, body);
      backlog_.emplace_back(body.begin(), body.end());
      return;
    case Kind::kReply:
      if (!is_root_) return send(parent_, Kind::kReply, body);
      return take_reply(in.get<int32_t>(), body.subspan(sizeof(int32_t)));
    case Kind::kProgress: {
      const auto rank = in.get<int32_t>();
      for (Child& child : children_)
        if (child.rank == rank) {
          child.finished = in.get<uint64_t>();
          child.consumed = in.get<uint64_t>();
        }
      return;
    }
    case Kind::kArrival: return verdicts_->arrived(decode_arrival(in), now_());
    case Kind::kLeft: {
      const auto worker = in.get<int32_t>();
      const auto seq = in.get<uint64_t>();
      const Origin origin = decode_origin(in);
      return verdicts_->left(worker, seq, origin.worker >= 0 ? std::optional(origin) : std::nullopt);
    }
    case Kind::kVerdict: {
      const auto workers = in.list<int32_t>();
      const auto rest = message.last(in.count(1));
      for (int32_t worker : workers) segment_.board().verdict(worker).write(rest);
      segment_.board().bell().ring();
      return;
    }
    case Kind::kQuestion: {
      const auto asker = in.get<int32_t>();
      return ask_nodes(asker, body.subspan(sizeof asker));
    }
    case Kind::kAsk: return take_question(decode_sequence(in));
    case Kind::kAnswer: {
      const auto node = in.get<int32_t>();
      return questions_->answered(node, decode_answer(in));
    }
    case Kind::kAnswered: return take_answer(decode_answer(in));
    case Kind::kLook: {
      for (const Child& child : children_) send(child.rank, Kind::kLook, body);
      if (is_root_) return;
      Writer answer;
      answer.put(in.get<uint64_t>());
      answer.put(static_cast<int32_t>(node_));
      auto states = look_at(segment_);
      if (in.get<uint8_t>() != 0) add_source_lines(states, segment_);
      answer.put(static_cast<uint64_t>(states.size()));
      for (const auto& state : states) encode(answer, state);
      return to_root(Kind::kState, answer);
    }
    case Kind::kDump:
      for (const Child& child : children_) send(child.rank, Kind::kDump, body);
      return traces_.write(decode_trace_dump(in));
    case Kind::kDeviceLoss: {
      const auto since = in.get<uint64_t>();
      return segment_.board().tell_device_loss({since, decode_origin(in)});  // the next step passes it on
    }
    case Kind::kBeat: return heartbeat_->says_where(from, in.text());
    case Kind::kBye: return heartbeat_->leaves(from);
    case Kind::kLost: throw TransportError(in.text());
    case Kind::kState: {
      const auto look = in.get<uint64_t>();
      const auto node = in.get<int32_t>();
      std::vector<WorkerState> states;
      for (uint64_t n = in.count(32); n > 0; --n) states.push_back(decode_worker_state(in));
      if (look & kOwnLook) {
        if (look == look_.number) look_.states[node] = std::move(states);
        return;
      }
      std::lock_guard lock(mutex_);
      if (look == looks_) states_[node] = std::move(states);
      return;
    }
    case Kind::kWatch: {
      const auto worker = in.get<int32_t>();
      watches_.insert({worker, in.get<uint64_t>()});
      return;
    }
  }
}

/// Replies come as pieces of each worker's stream, so that one of any size passes.
void Leader::take_reply(int32_t worker, std::span<const std::byte> piece) {
  while (!piece.empty())
    if (auto frame = frames_[worker].poll(piece)) {
      std::lock_guard lock(mutex_);
      inbox_.push_back(std::move(*frame));
    }
  segment_.header().controller.ring();
}

bool Leader::forward_commands() {
  bool worked = false;
  if (is_root_) {
    std::vector<std::byte> bytes;
    std::vector<TraceDump> dumps;
    {
      std::lock_guard lock(mutex_);
      bytes.swap(outgoing_);
      dumps.swap(dumps_);
    }
    for (const TraceDump& dump : dumps) {  // before commands: the next may end the session
      Writer body;
      encode(body, dump);
      for (const Child& child : children_) send(child.rank, Kind::kDump, body.bytes());
    }
    if (bytes.empty()) return !dumps.empty();
    for (const Child& child : children_) send(child.rank, Kind::kCommands, bytes);
    return true;
  }
  while (!backlog_.empty()) {
    const auto rest = std::span(backlog_.front()).subspan(backlog_taken_);
    const size_t taken = ring_.write_some(rest);
    if (taken == 0) break;
    backlog_taken_ += taken;
    if (taken == rest.size()) backlog_.pop_front(), backlog_taken_ = 0;
    segment_.header().commands.ring();
    worked = true;
  }
  return worked;
}

bool Leader::forward_replies() {
  bool worked = false;
  for (size_t i = 0; i < replies_.size(); ++i) {
    if (!replies_[i].readable()) continue;
    if (sending_.size() > kMostSending) break;  // a slow link: the worker waits for space
    const auto piece = replies_[i].peek();
    Writer body;
    body.put(segment_.workers()[i]);
    body.raw(piece.data(), piece.size());
    replies_[i].consume(piece.size());
    replies_[i].tell();
    send(parent_, Kind::kReply, body.bytes());
    segment_.slot(segment_.workers()[i]).reply_space.ring();
    worked = true;
  }
  return worked;
}

bool Leader::has_replies() {
  return std::any_of(replies_.begin(), replies_.end(), [](RingReader& ring) { return ring.readable(); });
}

/// What a worker sent before it finished a command goes up before the news that it has.
bool Leader::forward_progress() {
  uint64_t finished = is_root_ ? UINT64_MAX : segment_.least_finished();
  uint64_t consumed = is_root_ ? UINT64_MAX : ring_.consumed();
  for (const Child& child : children_) {
    finished = std::min(finished, child.finished);
    consumed = std::min(consumed, child.consumed);
  }
  if (is_root_) {
    const bool news = finished_below_.exchange(finished) != finished;
    const bool room = consumed_below_.exchange(consumed) != consumed;
    if (news || room) segment_.header().controller.ring();
    return news || room;
  }
  const bool worked = forward_replies();
  const bool overdue = finished != sent_finished_ || consumed - sent_consumed_ > kWindow / 8;
  if (!overdue || sending_.size() > kMostSending || has_replies()) return worked;
  Writer body;
  body.put(static_cast<int32_t>(rank_));
  body.put(finished);
  body.put(consumed);
  send(parent_, Kind::kProgress, body.bytes());
  sent_finished_ = finished;
  sent_consumed_ = consumed;
  return true;
}

void Leader::to_root(Kind kind, const Writer& body) { send(0, kind, const_cast<Writer&>(body).bytes()); }

void Leader::send(int rank, Kind kind, std::span<const std::byte> body) {
  Writer message;
  message.put(kind);
  message.put(segment_.layout().session);
  message.raw(body.data(), body.size());
  if (rank == rank_) return handle(rank, message.bytes());  // to ourselves
  sending_.push_back({std::move(message.bytes()), MPI_REQUEST_NULL, kind != Kind::kBeat});
  Sending& s = sending_.back();
  check_mpi(MPI_Isend(s.bytes.data(), static_cast<int>(s.bytes.size()), MPI_BYTE, rank, static_cast<int>(Tag::kLeader), control_,
                      &s.request),
            "MPI_Isend");
  ++mail_.sent[static_cast<size_t>(rank)];
}

bool Leader::complete_sends() {
  bool worked = false;
  for (auto it = sending_.begin(); it != sending_.end();) {
    int flag = 0;
    check_mpi(MPI_Test(&it->request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (flag) worked |= it->is_work, it = sending_.erase(it);
    else ++it;
  }
  return worked;
}

}  // namespace tutti::detail
