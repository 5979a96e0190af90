#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agreement/answer.h"
#include "core/doorbell.h"

namespace tutti::detail {

/// The root's table of what workers that wait for their device ask of other nodes: have all members started the same? Each node
/// with members answers once. A plain state machine: the clock is an argument, messages are the caller's.
class Questions {
 public:
  /// @param asker  the node that wants the answer
  /// @return whether the nodes must be asked: it is neither under way nor known
  bool asked(int asker, const Sequence& sequence, std::set<int> nodes, Clock::time_point now);
  void answered(int node, const Answer& answer);

  struct Known {
    std::vector<int> askers;  // nodes
    Answer answer;
  };
  std::vector<Known> take_known();

  bool pending(const CollectiveId& latest) const;
  /// Those that ask up to these collectives are told this.
  void fail(const std::vector<CollectiveId>& ids, const std::string& message);
  bool anyone_waits_since(Clock::time_point time) const;
  /// Communicators made until that command are not used any more.
  void drop_until(uint64_t since);

 private:
  struct Pending {
    CollectiveId latest;
    std::vector<int> askers;
    std::set<int> nodes;  // that have not answered
    Clock::time_point since;
  };
  void close(std::map<Sequence::Id, Pending>::iterator pending, std::optional<Disagreement> why);
  std::map<Sequence::Id, Pending> pending_;
  std::map<CommKey, Answer> latest_;  // of nodes that ask later
  std::vector<Known> known_;
};

}  // namespace tutti::detail
