// What the workers of all nodes do, for hang reports, for deadlocks, for files.
#include <algorithm>

#include "agreement/deadlock.h"
#include "control/channel/mpi/leader.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kSuspectAcross = 500ms;  // a wait of this length may be a deadlock

}  // namespace

/// Who has waited long for members on other nodes may wait for ever: what all workers do tells.
bool Leader::look_for_deadlocks() {
  if (!is_root_) return false;
  const auto now = now_();
  const auto anyone_waits_since = [&](Clock::time_point time) {
    return verdicts_->anyone_waits_since(time) || questions_->anyone_waits_since(time);
  };
  if (!look_.under_way) {
    if (now - look_.begun < kSuspectAcross || !anyone_waits_since(now - kSuspectAcross)) return false;
    look_ = {
        .number = (look_.number | kOwnLook) + 1, .under_way = true, .begun = now, .states = {}, .found = std::move(look_.found)};
    Writer body;
    body.put(look_.number);
    body.put(uint8_t{0});
    send(0, Kind::kLook, body.bytes());
    return true;
  }
  if (std::ssize(look_.states) < segment_.layout().num_nodes() - 1) return false;
  look_.under_way = false;
  const auto here = look_at(segment_);
  std::vector<MemberState> states(here.begin(), here.end());
  for (const auto& [node, theirs] : look_.states) states.insert(states.end(), theirs.begin(), theirs.end());
  const auto& node_of = segment_.layout().node_of;
  const auto found = find_deadlock(states, [&](const MemberState& state) {
    const bool on_node = std::all_of(state.members.begin(), state.members.end(), [&](int32_t member) {
      return node_of[static_cast<size_t>(member)] == node_of[static_cast<size_t>(state.worker)];
    });
    return on_node || verdicts_->pending(state.worker, state.id) || questions_->pending(state.id);
  });
  const auto before = std::exchange(look_.found, found);
  if (!found || found != before) return true;
  for (const auto& fallen : verdicts_->fail(found->ids, found->message)) hand_down(fallen);
  questions_->fail(found->ids, found->message);
  return true;
}

bool Leader::pass_on_looks() {
  if (!is_root_) return false;
  uint64_t looks = 0;
  bool with_lines = false;
  {
    std::lock_guard lock(mutex_);
    looks = looks_;
    with_lines = look_has_lines_;
  }
  if (looks == std::exchange(looks_passed_on_, looks)) return false;
  Writer body;
  body.put(looks);
  body.put(static_cast<uint8_t>(with_lines));
  send(0, Kind::kLook, body.bytes());
  return true;
}

void Leader::dump_below(const TraceDump& dump) {
  {
    std::lock_guard lock(mutex_);
    dumps_.push_back(dump);
  }
  segment_.header().controller.ring();
}

std::vector<WorkerState> Leader::look_below(Clock::time_point deadline, bool with_lines) {
  const auto others = static_cast<size_t>(segment_.layout().num_nodes() - 1);
  {
    std::lock_guard lock(mutex_);
    ++looks_;
    look_has_lines_ = with_lines;
    states_.clear();
  }
  segment_.header().controller.ring();
  std::vector<WorkerState> all;
  for (bool complete = false; !complete;) {
    std::this_thread::sleep_for(1ms);
    const bool late = Clock::now() >= deadline;
    std::lock_guard lock(mutex_);
    complete = late || failed_.load() || states_.size() == others;
    if (complete)
      for (auto& [node, states] : states_) all.insert(all.end(), states.begin(), states.end());
  }
  return all;
}

}  // namespace tutti::detail
