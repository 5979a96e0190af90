#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agreement/answer.h"
#include "agreement/board.h"

namespace tutti::detail {

/// Collectives that a worker starts on its device without waiting for the other members. It announces each on its node's board.
/// A worker that waits for its device looks whether the others have announced the same ones, in the same order. Used by the
/// worker's thread only.
class Announcements {
 public:
  /// `has_taken`: whether this worker has been at a collective of the command that runs.
  Announcements(
      Board& board, int worker, std::function<bool(const CollectiveId&)> has_taken, std::function<void()> tell_leader = [] {})
      : board_(board), worker_(worker), has_taken_(std::move(has_taken)), tell_leader_(std::move(tell_leader)) {}
  /// The members begin anew, all at command `since`: what was announced before counts no more.
  void restart(uint64_t since);
  /// @param members  worker ids by rank
  void add(const CollectiveId& id, const Signature& signature, const std::vector<int>& members);
  bool are_settled() const { return open_.empty(); }  ///< all members have announced what we have
  /// Looks at the others; at those of other nodes through the leaders. A member that won't come, or has come with something else.
  std::optional<Disagreement> look();
  void withdraw();  ///< what was asked: nobody waits for the answer any more

 private:
  struct Own : Sequence {
    explicit Own(Sequence sequence) : Sequence(std::move(sequence)) {}
    size_t place = 0;       // on the board
    bool is_open = false;   // some may still have to come
    uint32_t answered = 0;  // up to there the members on other nodes are there
  };
  std::optional<Disagreement> look_at(Own& own, bool& all_there);
  std::optional<Disagreement> ask(Own& own, bool& all_there);
  std::optional<Disagreement> circle(const Announcement& missed, int other);

  Board& board_;
  int worker_;
  std::function<bool(const CollectiveId&)> has_taken_;
  std::function<void()> tell_leader_;
  uint64_t since_ = 0;
  uint64_t announced_ = 0;                      // in all
  size_t places_ = 0;                           // in all
  std::unordered_map<CommKey, Own> sequences_;  // pointers to its elements stay good
  Own* latest_ = nullptr;
  std::array<const Sequence*, Board::kSequences> lines_{};  // whose latest announcement stands there
  std::vector<Own*> open_;
  Declined declined_;
  std::optional<Sequence::Id> asked_;
  uint64_t answer_seen_ = 0;  // a version
};

}  // namespace tutti::detail
