#pragma once

#include <memory>
#include <vector>

#include "distributed/party.h"
#include "distributed/transition.h"

namespace tutti::distributed {

/// What one worker does in one exchange.
struct Share {
  DTensorStructInfo from, to;
  Party party;              ///< without members: this worker sends and receives nothing
  std::vector<Move> moves;  ///< that this worker sends, receives, or keeps; as in the transition
  int64_t addends = 1;
  bool is_neutral = false;  ///< its part becomes what changes no reduction
  int64_t rounds = 1;       ///< in which blocks are packed and sent
};

/// The exchanges that concern this worker. Kept in this process: a program goes the same ways again and again.
std::shared_ptr<const std::vector<Share>> shares(int64_t worker, const DTensorStructInfo& from, const DTensorStructInfo& to);

}  // namespace tutti::distributed
