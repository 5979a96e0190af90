#include "agreement/board_view.h"

#include <algorithm>
#include <utility>

#include "agreement/failures.h"

namespace tutti::detail {

std::optional<Arrival> BoardView::arrival(int worker) {
  const SharedRecord record = board_.arrival(worker);
  ArrivalLine::Seen latest{}, before{};
  std::vector<std::byte> bytes;
  std::optional<Arrival> recorded;
  bool has_before = false;
  for (;;) {
    const ArrivalLine* lines[] = {&board_.line(worker, 0), &board_.line(worker, 1)};
    if (lines[1]->version() > lines[0]->version()) std::swap(lines[0], lines[1]);
    if (lines[0]->version() == 0) return std::nullopt;
    if (lines[0]->read(latest) && record.read(bytes)) {
      recorded.reset();
      if (!bytes.empty()) {
        Reader in(bytes);
        recorded = decode_arrival(in);
      }
      has_before = lines[1]->read(before);
      // a record is written before its line: without that its worker has not arrived
      if (!latest.in_record || (recorded && recorded->id == latest.id())) break;
    }
    if (board_.abandoned()) return std::nullopt;  // its writer may have died over it
    yield_cpu();
  }
  const auto as_arrived = [&](const ArrivalLine::Seen& seen) -> std::optional<Arrival> {
    Arrival arrival = ArrivalLine::arrival(seen, worker);
    return seen.in_record || (recorded && recorded->id == arrival.id) ? recorded : arrival;
  };
  if (wanted_ && has_before && before.id() == *wanted_ && latest.id() != *wanted_) {
    const auto is_wanted = [&](const auto& entry) { return entry.first == *wanted_; };
    if (recorded && std::any_of(recorded->left.begin(), recorded->left.end(), is_wanted)) return recorded;
    if (auto arrival = as_arrived(before); arrival && arrival->id == *wanted_) return arrival;
  }
  return as_arrived(latest);
}

/// Leaders go by records, which are written before the lines: this one's may be on its way.
int BoardView::line_of(int worker, ArrivalLine::Seen& seen) {
  for (;; yield_cpu()) {
    for (int line = 0; line < Board::kLines; ++line)
      if (board_.line(worker, line).read(seen) && seen.id() == *wanted_) return line;
    board_.check_not_abandoned();
  }
}

std::vector<CollectiveId> BoardView::joined(int worker) {
  std::vector<CollectiveId> ids;
  ArrivalLine::Seen seen{};
  for (int line = 0; line < Board::kLines; ++line)
    if (board_.line(worker, line).version() != 0 && board_.line(worker, line).read(seen)) ids.push_back(seen.id());
  return ids;
}

bool BoardView::finished(int worker, uint64_t seq) {
  const BoardMember& slot = board_.member(worker);
  // in this order: a failure that a later one has replaced is of a command that is finished by then
  return slot.failed_seq.load(std::memory_order_seq_cst) == seq || slot.finished_seq.load(std::memory_order_seq_cst) >= seq;
}
std::optional<Origin> BoardView::failure_at(int worker, uint64_t seq) {
  return Failures::at(board_.failures(worker), seq, [this] { return board_.abandoned(); });
}

}  // namespace tutti::detail
