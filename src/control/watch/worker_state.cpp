#include "control/watch/worker_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "agreement/board_view.h"
#include "agreement/sequence.h"
#include "control/segment/segment.h"
#include "core/printable.h"

namespace tutti::detail {

void encode(Writer& out, const WorkerState& s) {
  out.put(s.worker);
  out.put(static_cast<uint8_t>(s.kind));
  out.text(s.host);
  out.put(s.pid);
  out.put(s.finished);
  out.put(s.seq);
  out.text(s.doing);
  out.put(s.seconds);
  out.text(s.line);
  encode(out, s.id);
  out.list(s.members);
  out.put(static_cast<uint64_t>(s.left.size()));
  for (const CollectiveId& id : s.left) encode(out, id);
  out.put(static_cast<uint64_t>(s.joined.size()));
  for (const CollectiveId& id : s.joined) encode(out, id);
  out.put(static_cast<uint64_t>(s.started.size()));
  for (const CollectiveId& id : s.started) encode(out, id);
  out.put(static_cast<uint8_t>(s.at_device));
}

WorkerState decode_worker_state(Reader& in) {
  WorkerState s;
  s.worker = in.get<int32_t>();
  s.kind = static_cast<WorkerState::Kind>(std::min<uint8_t>(in.get<uint8_t>(), static_cast<uint8_t>(WorkerState::Kind::kMoves)));
  s.host = in.text();
  s.pid = in.get<int64_t>();
  s.finished = in.get<uint64_t>();
  s.seq = in.get<uint64_t>();
  s.doing = in.text();
  s.seconds = in.get<double>();
  s.line = in.text();
  s.id = decode_collective_id(in);
  s.members = in.list<int32_t>();
  for (uint64_t n = in.count(20); n > 0; --n) s.left.push_back(decode_collective_id(in));
  for (uint64_t n = in.count(20); n > 0; --n) s.joined.push_back(decode_collective_id(in));
  for (uint64_t n = in.count(20); n > 0; --n) s.started.push_back(decode_collective_id(in));
  s.at_device = in.get<uint8_t>() != 0;
  return s;
}

namespace {

/// The latest announcement of each of its communicators that are in use.
std::vector<CollectiveId> started_by(Board& board, int worker) {
  std::vector<Announcement> latest;
  uint32_t since = 0;
  for (size_t place = 0; place < Board::kSequences; ++place)
    if (const auto one = Announcement::read(board.latest_of(worker, place))) {
      if (latest.empty() || static_cast<int32_t>(one->since - since) > 0) since = one->since;
      latest.push_back(*one);
    }
  std::vector<CollectiveId> ids;
  for (const Announcement& one : latest)
    if (one.since == since) ids.push_back(one.id());
  return ids;
}

/// What it has started and asks other nodes for.
std::optional<Sequence> question_of(Board& board, int worker) {
  std::vector<std::byte> bytes;
  if (!board.question(worker).read(bytes) || bytes.empty()) return std::nullopt;
  Reader in(bytes);
  return decode_sequence(in);
}

std::string text_of(const ReplayView::Name& name) {
  char text[sizeof(ShortName) + 1] = {};
  for (size_t i = 0; i < std::size(name); ++i) {
    const uint64_t word = name[i].load(std::memory_order_relaxed);
    std::memcpy(text + i * sizeof word, &word, sizeof word);
  }
  return text;
}

/// " in step 3 of program train.py:12, iteration 17"; "" outside of programs.
std::string place_in(const ReplayView& replay) {
  const uint32_t step = replay.step.load(std::memory_order_relaxed);
  if (step == 0) return {};
  return fmt::format(" in step {} of program {}, iteration {}", step, text_of(replay.program),
                     replay.iteration.load(std::memory_order_relaxed));
}

}  // namespace

std::vector<WorkerState> look_at(Segment& segment) {
  std::vector<WorkerState> states;
  BoardView view(segment.board());
  const TickScale scale = segment.tick_scale();
  for (int32_t worker : segment.workers()) {
    WorkerState s;
    s.worker = worker;
    s.kind = WorkerState::Kind::kIdle;
    s.host = segment.header().host;
    s.pid = segment.slot(worker).pid.load();
    s.finished = segment.board().member(worker).finished_seq.load();
    const Recorder recorder = segment.recorder(worker);
    const auto command = recorder.last(Record::What::kCommand), collective = recorder.last(Record::What::kCollective);
    const uint64_t now = ticks();
    const auto asked = question_of(segment.board(), worker);
    const ReplayView& replay = segment.slot(worker).replay;
    const std::string place = place_in(replay);
    const uint64_t current = segment.slot(worker).current_seq.load();
    // NCCL connects its members as the first ones start
    const bool starts =
        asked && collective && collective->running() && collective->agreed && collective->id == asked->latest.id();
    if (collective && collective->running() && !starts) {
      s.kind = collective->agreed ? WorkerState::Kind::kMoves : WorkerState::Kind::kWaits;
      s.seq = collective->seq;
      s.doing = describe(collective->id, collective->signature);
      s.seconds = scale.seconds_between(collective->agreed ? collective->agreed : collective->begin, now);
      s.id = collective->id;
    } else if (asked && (!command || command->running())) {  // many collectives may have taken the command's record
      s.kind = WorkerState::Kind::kWaits;
      s.at_device = true;
      s.id = asked->latest.id();
      s.seq = s.id.seq;
      s.doing = describe(s.id, asked->latest.signature());
      if (command) s.seconds = scale.seconds_between(command->begin, now);
      s.members.assign(asked->members.begin(), asked->members.end());
    } else if (command && command->running()) {
      s.kind = WorkerState::Kind::kComputes;
      s.seq = command->seq;
      s.doing = command->function.empty() ? to_string(command->action) : command->function;
      if (!place.empty()) s.doing = text_of(replay.function);
      s.seconds = scale.seconds_between(command->begin, now);
    } else if (!place.empty() && current > s.finished) {  // its collectives have taken the command's record
      s.kind = WorkerState::Kind::kComputes;
      s.seq = current;
      s.doing = text_of(replay.function);
      s.seconds = scale.seconds_between(replay.begin.load(std::memory_order_relaxed), now);
    }
    if (s.kind != WorkerState::Kind::kIdle) s.doing += place;
    if (s.kind == WorkerState::Kind::kWaits || s.kind == WorkerState::Kind::kMoves) {
      const auto arrival = view.arrival(worker);
      if (arrival && arrival->id == s.id && !s.at_device) s.members = arrival->members;
      s.joined = view.joined(worker);
      if (arrival)
        for (const auto& [id, origin] : arrival->left) {
          std::erase(s.joined, id);
          if (s.at_device || arrival->id == s.id) s.left.push_back(id);
        }
    }
    s.started = started_by(segment.board(), worker);
    states.push_back(std::move(s));
  }
  return states;
}

std::string last_seen(Segment& segment, int worker) {
  for (const WorkerState& s : look_at(segment))
    if (s.worker == worker && s.kind != WorkerState::Kind::kIdle) return fmt::format("in {} of command {}", s.doing, s.seq);
  return "between commands";
}

std::string hang_report(std::span<const WorkerState> states, int num_workers, uint64_t issued) {
  std::string text;
  const std::vector<MemberState> members(states.begin(), states.end());
  for (int32_t worker = 0; worker < num_workers; ++worker) {
    const auto it = std::find_if(states.begin(), states.end(), [&](const WorkerState& s) { return s.worker == worker; });
    if (it == states.end() || it->kind == WorkerState::Kind::kUnknown) {
      text += fmt::format("  worker {}: its node does not answer\n", worker);
      continue;
    }
    const WorkerState& s = *it;
    std::string what;
    switch (s.kind) {
      case WorkerState::Kind::kComputes:
        what = fmt::format("{} {} in command {} since {:.1f} s", s.doing == kOfDevice ? "waits for the" : "computes",
                           printable(s.doing), s.seq, s.seconds);
        break;
      case WorkerState::Kind::kMoves:
        what = fmt::format("moves data in {} of command {} since {:.1f} s", s.doing, s.seq, s.seconds);
        break;
      case WorkerState::Kind::kWaits: {
        const auto missing = missing_in(s, members);
        what = fmt::format("waits in {} of command {} since {:.1f} s for {}", s.doing, s.seq, s.seconds,
                           missing.empty() ? "the verdict" : fmt::format("worker {}", fmt::join(missing, ", ")));
        break;
      }
      default: what = s.finished >= issued ? "idle, has done all" : "idle";
    }
    if (!s.line.empty()) what += ", at " + printable(s.line);
    text += fmt::format("  worker {} ({} pid {}): {}; {} of {} commands done\n", worker, s.host, s.pid, what, s.finished, issued);
  }
  return text;
}

}  // namespace tutti::detail
