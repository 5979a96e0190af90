#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agreement/announcement.h"
#include "agreement/board.h"
#include "agreement/rule.h"

namespace tutti::detail {

/// Collectives that a worker starts on its device without waiting for the other members. It announces each on its node's board.
/// A worker that waits for its device looks whether the others have announced the same ones, in the same order. Used by the
/// worker's thread only.
class Announcements {
 public:
  /// `has_taken`: whether this worker has been at a collective of the command that runs.
  Announcements(Board& board, int worker, std::function<bool(const CollectiveId&)> has_taken)
      : board_(board), worker_(worker), has_taken_(std::move(has_taken)) {}
  /// The members begin anew, all at command `since`: what was announced before counts no more.
  void restart(uint64_t since);
  /// @param members  worker ids by rank, all of this node
  void add(const CollectiveId& id, const Signature& signature, const std::vector<int>& members);
  bool are_settled() const { return open_.empty(); }  ///< all members have announced what we have
  /// Looks at the others. A member that won't come, or has come with something else.
  std::optional<Disagreement> look();

 private:
  /// Of one communicator.
  struct Sequence {
    std::vector<int> members;
    std::vector<size_t> places;  // of the sequence, on each member
    size_t place = 0;            // on this one
    Announcement latest;
    std::vector<Announcement> past;  // the last ones, by number
    std::vector<uint64_t> chains;    // of more of them
    bool is_open = false;
    CommKey comm() const { return latest.key.comm; }
    const Announcement* at(uint32_t number) const;
    std::optional<uint64_t> chain_at(uint32_t number) const;
  };
  enum class Reading { kFound, kNone, kBusy, kDropped };
  Reading read_latest(Sequence& sequence, size_t rank, Announcement& theirs) const;
  std::optional<Disagreement> circle(const Announcement& missed, int other);
  std::optional<Announcement> find_past(int worker, const Announcement& like) const;
  std::optional<Disagreement> look_at(Sequence& sequence, bool& all_there);
  Disagreement difference(const Sequence& sequence, int other, const Announcement& theirs) const;

  Board& board_;
  int worker_;
  std::function<bool(const CollectiveId&)> has_taken_;
  uint64_t since_ = 0;
  uint64_t announced_ = 0;                           // in all
  size_t places_ = 0;                                // in all
  std::unordered_map<CommKey, Sequence> sequences_;  // pointers to its elements stay good
  Sequence* latest_ = nullptr;
  std::array<const Sequence*, Board::kSequences> lines_{};  // whose latest announcement stands there
  std::vector<Sequence*> open_;
  std::optional<std::pair<CollectiveId, Clock::time_point>> declined_;  // by another member; when we saw it first
};

}  // namespace tutti::detail
