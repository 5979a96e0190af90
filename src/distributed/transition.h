#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/distributed.h"
#include "tutti/worker.h"

namespace tutti::distributed {

/// A block of the tensor, in the tensor's own coordinates, that goes from one worker to another; or that a worker has already.
struct Move {
  int64_t from, to;
  Block block;
  bool operator==(const Move&) const = default;
};

/// One exchange: each worker of `to` gets what it does not hold.
struct Transition {
  DTensorStructInfo from, to;
  std::vector<Move> moves;       ///< by receiver; those of one block one after another, in the order in which they are reduced
  int64_t addends = 1;           ///< moves of each block; more than 1: they are reduced
  std::vector<int64_t> neutral;  ///< workers that get what changes no reduction: another one has the value

  struct Traffic {
    int64_t bytes = 0;     ///< that change workers
    int64_t messages = 0;  ///< pairs of workers that exchange something
    int64_t most = 0;      ///< bytes that one worker receives, or sends
    int64_t most_messages = 0;
  };
  Traffic traffic() const;
};

/// @throws UsageError  they are not of one tensor, or `to` has partial values that can't be made of what `from` has
void check_transition(const DTensorStructInfo& from, const DTensorStructInfo& to);

/// The same with whole values, which can be made partial then: nothing moves.
DTensorStructInfo without_partial(const DTensorStructInfo& info);

/// What one exchange would do. From partial values a worker gets all that its block is reduced from.
Transition transition(const DTensorStructInfo& from, const DTensorStructInfo& to);

/// The exchanges that lead from one placement to the other. One, if that moves the fewest bytes; partial values that several
/// workers are to have are reduced by parts first, and those then sent around.
/// @throws UsageError  as check_transition
std::vector<Transition> plan(const DTensorStructInfo& from, const DTensorStructInfo& to);

int64_t element_count(const Block& block);
int64_t saturated_sum(int64_t a, int64_t b);  ///< the largest number in place of an overflow: of many workers that each get much
std::optional<Block> intersection(const Block& a, const Block& b);  ///< nothing: they have no element in common

}  // namespace tutti::distributed
