// What a leader does for collectives that workers have started without waiting: questions to the root, which asks the other
// nodes' leaders; these answer for their workers.
#include <algorithm>

#include "control/channel/mpi/leader.h"

namespace tutti::detail {

/// Of several workers that ask the same, one asks for all. Of each worker the last question counts: its answer must not be
/// replaced by that to an earlier one.
bool Leader::forward_questions() {
  bool worked = false;
  for (size_t i = 0; i < asking_.size(); ++i) {
    std::vector<std::byte> bytes;
    if (!segment_.board().question(segment_.workers()[i]).read_next(bytes, question_versions_[i])) continue;
    std::optional<Sequence::Id> id;
    if (!bytes.empty()) {
      Reader in(bytes);
      id = decode_sequence(in).id();
      if (is_lost(id->since)) id.reset();
    }
    const bool is_new = id && std::ranges::find(asking_, id) == asking_.end();
    asking_[i] = id;
    if (!is_new) continue;
    Writer body;
    body.put(static_cast<int32_t>(node_));
    body.raw(bytes.data(), bytes.size());
    to_root(Kind::kQuestion, body);
    worked = true;
  }
  return worked;
}

/// Root: from node `asker`.
void Leader::ask_nodes(int asker, std::span<const std::byte> question) {
  Reader in(question);
  const Sequence sequence = decode_sequence(in);
  if (is_lost(sequence.since())) return;
  const auto& layout = segment_.layout();
  std::set<int> nodes;
  for (const int member : sequence.members) nodes.insert(layout.node_of.at(static_cast<size_t>(member)));
  if (!questions_->asked(asker, sequence, nodes, now_())) return;
  for (const int node : nodes) send(layout.leader_of(node), Kind::kAsk, question);
}

void Leader::take_question(Sequence asked) {
  if (!is_lost(asked.since())) open_questions_.emplace_back(std::move(asked));
}

bool Leader::answer_questions() {
  bool worked = false;
  for (auto it = open_questions_.begin(); it != open_questions_.end();) {
    const auto answer = it->look(segment_.board());
    if (!answer) {
      ++it;
      continue;
    }
    Writer body;
    body.put(static_cast<int32_t>(node_));
    encode(body, *answer);
    it = open_questions_.erase(it);
    to_root(Kind::kAnswer, body);
    worked = true;
  }
  auto& shown = segment_.board().header().questions;
  const auto open = static_cast<uint32_t>(open_questions_.size());
  if (shown.load(std::memory_order_relaxed) != open) shown.store(open, std::memory_order_relaxed);
  return worked;
}

bool Leader::hand_down_answers() {
  if (!is_root_) return false;
  const auto known = questions_->take_known();
  for (const auto& [askers, answer] : known) {
    Writer body;
    encode(body, answer);
    for (const int node : askers) send(segment_.layout().leader_of(node), Kind::kAnswered, body.bytes());
  }
  return !known.empty();
}

void Leader::take_answer(const Answer& answer) {
  Writer out;
  encode(out, answer);
  for (size_t i = 0; i < asking_.size(); ++i) {
    if (asking_[i] != answer.id) continue;
    asking_[i].reset();
    segment_.board().answer(segment_.workers()[i]).write(out.bytes());
  }
}

/// Its communicators can't be used any more.
bool Leader::is_lost(uint64_t since) const { return since <= device_lost_since_; }

/// Nobody waits for the answers: those that have asked were told of the loss, and make new communicators.
void Leader::drop_questions() {
  std::erase_if(open_questions_, [&](const Question& one) { return is_lost(one.since()); });
  for (auto& id : asking_)
    if (id && is_lost(id->since)) id.reset();
  if (questions_) questions_->drop_until(device_lost_since_);
}

}  // namespace tutti::detail
