#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "agreement/board.h"
#include "agreement/control_plane.h"
#include "agreement/rule.h"

namespace tutti::detail {

/// What a worker writes of itself on its node's board: it joins collectives, leaves and declines them, and takes note of others.
class OwnArrivals {
 public:
  OwnArrivals(Board& board, int worker, WaitPolicy policy, ControlPlane& plane)
      : board_(board), worker_(worker), policy_(policy), plane_(plane), seen_taken_(static_cast<size_t>(board.num_workers())) {}

  int worker() const { return worker_; }
  void begin_command() { left_.clear(); }
  bool has_left() const { return !left_.empty(); }  ///< a collective of this command, without success
  void check_may_join() const;                      ///< @throws UsageError

  enum class Readers { kLine, kRecord, kLeader };  ///< kLine: members on this node, for whom the line says enough
  /// Waits for those who may still have to read what is there.
  ArrivalLine::Key join(Arrival& mine, Readers readers);
  void tell_members(const Arrival& mine);  ///< in the record, when the line alone was to do: they need the list of members
  void decline(const CollectiveId& id);
  /// The origin is `why.origin`, or this worker.  @throws ConsequenceError, UsageError  always
  [[noreturn]] void leave(Arrival& mine, const Disagreement& why);

  /// We agree with this member, whose arrival says `taken`: what we have written stays until it has taken note.
  void agrees(int worker, uint64_t taken);
  void take();                                 ///< The others may write anew.
  void take_quietly();                         ///< The same; nobody waits for it.
  void all_took() { takers_[line_].clear(); }  ///< They have read our arrival: we have heard from each since.
  void over();                                 ///< We are in no other's memory.

 private:
  void await_takers(int line);
  void write_record(const Arrival& arrival);

  Board& board_;
  int worker_;
  WaitPolicy policy_;
  ControlPlane& plane_;
  std::vector<std::pair<CollectiveId, Origin>> left_;            // in this command
  uint64_t arrived_ = 0;                                         // arrivals written, in turns into the lines
  int line_ = 0;                                                 // of the latest
  std::vector<std::pair<int, uint64_t>> takers_[Board::kLines];  // (worker, count) to wait for before it is written again
  std::vector<uint64_t> seen_taken_;                             // by worker: what its arrivals have said of its count
};

/// The words of the arrival in that line of a member.
std::array<uint64_t, 6> attached_words(Board& board, int worker, int line);

}  // namespace tutti::detail
