#pragma once

#include <compare>
#include <cstdint>
#include <span>

#include "core/wire.h"

namespace tutti::detail {

/// Names a communicator on all its members: a kind in the top byte, then what tells it apart.
using CommKey = uint64_t;
enum class CommKind : uint8_t {
  kWorld,
  kGroup,
  kPair,
  kPart,  ///< of a split; ends with its command
  kNamed  ///< by its members; lives as long as the session
};
constexpr CommKind kind(CommKey key) { return static_cast<CommKind>(key >> 56); }
constexpr CommKey key_of(CommKind kind) { return static_cast<CommKey>(kind) << 56; }
constexpr CommKey world_key() { return 0; }
constexpr CommKey group_key(int group) { return key_of(CommKind::kGroup) | static_cast<CommKey>(group); }
constexpr CommKey pair_key(int from, int to) {
  return key_of(CommKind::kPair) | (static_cast<CommKey>(from) << 24) | static_cast<CommKey>(to);
}
/// Any workers, in any order: the first of them, and a hash of the list and of what else tells the communicator apart.
CommKey members_key(CommKind kind, std::span<const int> workers, uint64_t what_else = 0);
constexpr int first_of(CommKey key) { return static_cast<int>(key >> 36 & 0xfffff); }

/// Identity of a collective: communicator, command, how many collectives of this communicator came before in it.
struct CollectiveId {
  CommKey comm = 0;
  uint64_t seq = 0;
  uint32_t index = 0;
  auto operator<=>(const CollectiveId&) const = default;
};

void encode(Writer& out, const CollectiveId& id);
CollectiveId decode_collective_id(Reader& in);

}  // namespace tutti::detail
