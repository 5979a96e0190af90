// What a leader does for agreements across nodes: arrivals to the root, verdicts down.
#include <map>

#include "agreement/board_view.h"
#include "control/channel/mpi/leader.h"

namespace tutti::detail {

bool Leader::forward_arrivals() {
  bool worked = false;
  for (size_t i = 0; i < arrival_versions_.size(); ++i) {
    const int worker = segment_.workers()[i];
    std::vector<std::byte> bytes;
    if (!segment_.board().arrival(worker).read_next(bytes, arrival_versions_[i])) continue;
    Reader in(bytes);
    Arrival arrival = decode_arrival(in);
    const bool on_node = !arrival.members.empty() &&
                         std::all_of(arrival.members.begin(), arrival.members.end(), [&](int w) { return segment_.has(w); });
    if (on_node) {
      // no business of other nodes, but what the worker has left before may be, and this is the first we see of it
      if (arrival.left.empty()) continue;
      arrival.id = arrival.left.back().first;
      arrival.members.clear();
    }
    Writer body;
    encode(body, arrival);
    to_root(Kind::kArrival, body);
    worked = true;
  }
  return worked;
}

/// Up and down: who has told us knows it already, and stops there.
bool Leader::pass_on_device_loss() {
  const auto loss = segment_.board().device_loss(device_lost_since_ + 1);
  if (!loss) return false;
  device_lost_since_ = loss->since;
  drop_questions();
  Writer body;
  body.put(loss->since);
  encode(body, loss->origin);
  for (const Child& child : children_) send(child.rank, Kind::kDeviceLoss, body.bytes());
  if (!is_root_) to_root(Kind::kDeviceLoss, body);
  return true;
}

bool Leader::answer_watches() {
  bool worked = false;
  BoardView view(segment_.board());
  for (auto it = watches_.begin(); it != watches_.end();) {
    if (!view.finished(it->worker, it->seq)) {
      ++it;
      continue;
    }
    forward_arrivals();  // whatever it wrote before it left goes first
    Writer body;
    body.put(static_cast<int32_t>(it->worker));
    body.put(it->seq);
    encode(body, view.failure_at(it->worker, it->seq).value_or(Origin{}));
    to_root(Kind::kLeft, body);
    it = watches_.erase(it);
    worked = true;
  }
  return worked;
}

bool Leader::hand_down_verdicts() {
  if (!is_root_) return false;
  bool worked = false;
  const auto& layout = segment_.layout();
  const auto now = now_();
  for (const auto& fallen : verdicts_->fall(now)) {
    worked = true;
    hand_down(fallen);
  }
  for (const auto& [worker, seq] : verdicts_->missing(now)) {
    worked = true;
    Writer body;
    body.put(static_cast<int32_t>(worker));
    body.put(seq);
    send(layout.leader_of(layout.node_of[static_cast<size_t>(worker)]), Kind::kWatch, body.bytes());
  }
  return worked;
}

void Leader::hand_down(const Verdicts::Fallen& fallen) {
  const auto& layout = segment_.layout();
  Writer verdict;
  encode(verdict, fallen.verdict);
  std::map<int, std::vector<int32_t>> by_node;
  for (int32_t worker : fallen.workers) by_node[layout.node_of[static_cast<size_t>(worker)]].push_back(worker);
  for (const auto& [node, workers] : by_node) {
    Writer body;
    body.list(workers);
    body.put(static_cast<uint64_t>(verdict.bytes().size()));
    body.raw(verdict.bytes().data(), verdict.bytes().size());
    send(layout.leader_of(node), Kind::kVerdict, body.bytes());
  }
}

}  // namespace tutti::detail
