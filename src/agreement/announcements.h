#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "agreement/announcement.h"
#include "agreement/board.h"
#include "agreement/rule.h"

namespace tutti::detail {

/// Collectives that a worker starts on its device without waiting for the other members. It announces each on its node's board.
/// Who waits for the device later looks whether the others have announced the same ones, in the same order. Used by the worker's
/// thread only.
class Announcements {
 public:
  Announcements(Board& board, int worker) : board_(board), worker_(worker) {}
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
    uint32_t number = 0;     // of our latest one
    uint64_t chain = 0;      // a hash of all so far
    CollectiveId last = {};  // the latest
    bool is_open = false;
  };
  /// The latest of that communicator up to that number. `is_ahead`: there are later ones.
  std::optional<Announcement> find(int worker, CommKey comm, uint32_t up_to, bool* is_ahead = nullptr) const;
  std::optional<Disagreement> look_at(const Sequence& sequence, bool& all_there) const;
  Disagreement difference(const Sequence& sequence, int other, uint32_t number) const;
  Disagreement absence(const Sequence& sequence, int other, uint32_t number) const;

  Board& board_;
  int worker_;
  uint64_t since_ = 0;
  uint64_t announced_ = 0;  // in all
  std::unordered_map<CommKey, Sequence> sequences_;
  Sequence* latest_ = nullptr;
  std::vector<Sequence*> open_;
};

}  // namespace tutti::detail
