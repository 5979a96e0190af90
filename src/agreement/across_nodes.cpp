#include "agreement/across_nodes.h"

#include "agreement/board_view.h"
#include "agreement/remote_verdict.h"

namespace tutti::detail {

void agree_across_nodes(Board& board, const WaitPolicy& policy, OwnArrivals& own, Arrival& mine, std::vector<Arrival>& arrivals) {
  const SharedRecord record = board.verdict(own.worker());
  uint64_t seen = UINT64_MAX;
  std::vector<std::byte> bytes;
  RemoteVerdict verdict;
  auto settled = [&] {
    if (!record.read_next(bytes, seen) || bytes.empty()) return false;
    Reader in(bytes);
    verdict = decode_remote_verdict(in);
    return verdict.id == mine.id;
  };
  board.await(policy, settled);
  if (!verdict.agreed) own.leave(mine, verdict.why);
  arrivals.assign(mine.members.size(), {});
  for (size_t r = 0; r < mine.members.size(); ++r) {
    arrivals[r] = {.worker = mine.members[r], .id = mine.id, .signature = mine.signature};
    if (r < verdict.counts.size()) arrivals[r].counts = verdict.counts[r];
  }
  // those of this node may move data through its memory, and stay as they arrived until they have all taken note
  BoardView view(board, mine.id);
  for (Arrival& arrival : arrivals) {
    if (arrival.worker == own.worker()) {
      arrival.attached.words = mine.attached.words;
      arrival.step = mine.step;
    } else if (board.has(arrival.worker)) {
      ArrivalLine::Seen seen{};
      const int line = view.line_of(arrival.worker, seen);
      arrival.step = seen.step;
      arrival.attached.words = attached_words(board, arrival.worker, line);
      own.agrees(arrival.worker, seen.taken);
    }
  }
}

}  // namespace tutti::detail
