#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "agreement/announcement.h"
#include "agreement/board.h"
#include "agreement/rule.h"

namespace tutti::detail {

/// What a worker has announced of one communicator since its members began anew.
struct Sequence {
  /// Up to its latest. Members with the same one have started the same collectives.
  struct Id {
    CommKey comm = 0;
    uint64_t since = 0;
    uint64_t number = 0;
    uint64_t chain = 0;
    auto operator<=>(const Id&) const = default;
  };
  Sequence(int worker, std::vector<int> members, uint64_t since, size_t chains_kept);
  void add(const ArrivalLine::Key& key);

  CommKey comm() const { return latest.key.comm; }
  uint64_t since() const { return latest.key.seq - static_cast<uint32_t>(latest.key.seq - latest.since); }
  Id id() const { return {comm(), since(), latest.number, latest.chain}; }
  const Announcement* at(uint32_t number) const;
  std::optional<uint64_t> chain_at(uint32_t number) const;
  /// A member waits to agree on what we have started: on another collective, as it would have started ours.
  std::optional<Disagreement> mismatch_with(const Arrival& theirs) const;

  int worker;
  std::vector<int> members;  // by rank
  Announcement latest;
  std::vector<Announcement> past;  // the last ones, by number
  std::vector<uint64_t> chains;    // of more of them
  std::vector<size_t> places;      // where on the board a member's latest was seen
};
void encode(Writer& out, const Sequence& sequence);
Sequence decode_sequence(Reader& in);

/// Of a worker's sequence with what another member has announced.
struct Comparison {
  bool is_there = true;  ///< the member has announced as many; what can't be read accuses nobody, and is not waited for
  std::optional<Disagreement> why;  ///< it won't come, or has come with something else
};
/// Tells whether a member that has not announced `missed` waits where it can't.
using IsStuck = std::function<std::optional<Disagreement>(const Announcement& missed, int member)>;

/// Members with the same number have started the same collectives if their chains are equal. A member that is ahead of us
/// compares its own past with our latest one when it looks, so one of the two does, unless they are very far apart.
/// @param rank  of a member on the board's node, not our own
Comparison compare(Board& board, Sequence& ours, size_t rank, const IsStuck& is_stuck);

/// That of a member at a collective that it has announced, or nothing when that is not on the board any more.
std::optional<Announcement> find_past(Board& board, int worker, const Announcement& like);

/// A member that has left a collective in the command that runs. Its failure is about to be reported, unless its function keeps
/// that to itself and goes on: those that wait for it report it then.
class Declined {
 public:
  std::optional<Disagreement> look(const Announcement& missed, int member, const Arrival& theirs);

 private:
  std::map<std::pair<int, CommKey>, std::pair<CollectiveId, Clock::time_point>> seen_;  // first, by member and communicator
};

}  // namespace tutti::detail
