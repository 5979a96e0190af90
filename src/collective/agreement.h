// Members of a collective agree before anything that can't be cancelled is entered. This is the interface through which
// `control` gives `collective` liveness and messages, and the rule by which the verdict falls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/wire.h"
#include "tutti/worker.h"

namespace tutti {

/// A failure is named by where it began.
struct Origin {
  int32_t worker = -1;
  uint64_t seq = 0;
  auto operator<=>(const Origin&) const = default;
};

/// Names a communicator on all its members: a kind in the top byte, then what tells it apart.
using CommKey = uint64_t;
constexpr CommKey world_key() { return 0; }
constexpr CommKey group_key(int group) { return (CommKey{1} << 56) | static_cast<CommKey>(group); }
constexpr CommKey pair_key(int from, int to) {
  return (CommKey{2} << 56) | (static_cast<CommKey>(from) << 24) | static_cast<CommKey>(to);
}
/// A part that a worker leads: one of the few it can lead at a time, and how often it has led one in this command.
inline constexpr int kSubSlots = 64;
inline constexpr CommKey kSubUses = CommKey{1} << 18;
constexpr CommKey sub_key(int leader, int slot, uint32_t use) {
  return (CommKey{3} << 56) | (static_cast<CommKey>(leader) << 24) | (static_cast<CommKey>(slot) * kSubUses + use % kSubUses);
}

/// Identity of a collective: communicator, command, how many collectives of this communicator came before in it.
struct CollectiveId {
  CommKey comm = 0;
  uint64_t seq = 0;
  uint32_t index = 0;
  auto operator<=>(const CollectiveId&) const = default;
};

void encode(Writer& out, const CollectiveId& id);
CollectiveId decode_collective_id(Reader& in);

enum class CollectiveOp : uint8_t {
  kAllreduce,
  kReduceScatter,
  kAllgather,
  kBroadcast,
  kScatter,
  kGather,
  kAllToAll,
  kSendRecv,
  kBarrier,
  kSplit
};
const char* to_string(CollectiveOp op);
inline bool has_parts(CollectiveOp op) { return op == CollectiveOp::kScatter || op == CollectiveOp::kGather; }

/// What must be equal on all members.
struct Signature {
  CollectiveOp op = CollectiveOp::kBarrier;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype{};
  int32_t device_type = dl::kCPU;
  int32_t root = 0;
  int64_t count = 0;  ///< elements; in scatter and gather this member's own part
  bool operator==(const Signature&) const = default;
};

/// Where the other members on the node find an operand.
struct Operand {
  enum class Where : uint8_t {
    kForeign,  ///< they can't reach it
    kHere,     ///< in the process that all members share; `offset` is its address
    kArena     ///< in an extent of its process's arena
  };
  Where where = Where::kForeign;
  int32_t fd = -1;
  uint64_t extent = 0, offset = 0, size_bytes = 0;
  bool in_reach() const { return where != Where::kForeign; }
};

/// Up to so many bytes travel with the arrival on a node.
inline constexpr size_t kEagerBytes = 8192;

struct Arrival {
  int32_t worker = 0;
  CollectiveId id;
  Signature signature;
  std::vector<int64_t>
      counts;  ///< scatter, gather: on the root, the parts of all members (none: equal ones); split: color, key, slot, use
  std::vector<int32_t> members;  ///< worker ids by rank
  uint64_t step = 0;             ///< where this member's step counter stands (node-local data movement)
  uint64_t taken = 0;            ///< where its count of agreements stands: it may not write anew before all have taken
  /// Collectives of this command that this member left without success, with the reason's origin.
  std::vector<std::pair<CollectiveId, Origin>> left;
  // on the node only, not encoded
  Operand src = {}, dst = {};
  bool is_eager = false;             ///< the data travels with the arrivals: what is in `eager`
  std::span<const std::byte> eager;  ///< of mine: what is to travel; of others: where it lies, until ends()
};
void encode(Writer& out, const Arrival& arrival);
Arrival decode_arrival(Reader& in);

/// A failed agreement. With an origin: a consequence of a failure that is reported on its own; without: a new failure.
struct Disagreement {
  std::optional<Origin> origin;
  std::string message;
};

struct Verdict {
  enum class Kind { kPending, kAgreed, kFailed } kind = Kind::kPending;
  Disagreement why;
};

/// What is known of a member at a moment.
class MemberView {
 public:
  virtual ~MemberView() = default;
  virtual std::optional<Arrival> arrival(int worker) = 0;                  ///< its latest
  virtual bool finished(int worker, uint64_t seq) = 0;                     ///< it has left command seq
  virtual std::optional<Origin> failure_at(int worker, uint64_t seq) = 0;  ///< what it failed or skipped with there
};

/// The rule. Fails when a member has left the command, or this collective, or has joined with another signature.
/// `stragglers_may_come`: on a mismatch wait for the rest, so that the message names everyone.
/// All members come to the same verdict: who has agreed stays as it arrived until all have taken note, who has left shows that.
Verdict decide(const Arrival& mine, MemberView& members, bool stragglers_may_come, std::vector<Arrival>* arrivals);

/// One of the sub-communicators that this worker can lead at a time.
struct SubSlot {
  int number = 0;
  uint32_t use = 0;
  std::shared_ptr<void> taken;  ///< as long as this lives
};

/// Given by the control plane to a worker's collectives.
class Agreement {
 public:
  virtual ~Agreement() = default;
  /// Takes the next identity on a communicator: every member does so for every collective, also for one it declines.
  virtual CollectiveId next_id(CommKey key) = 0;
  /// Blocks until the verdict; returns the arrivals of all members by rank, until the next call. `step` and `taken` of mine are
  /// filled in, `members` only of mine.
  /// @throws ConsequenceError, UsageError (mismatch), TransportError
  virtual const std::vector<Arrival>& agree(Arrival& mine) = 0;
  /// Data is about to move as all have agreed.
  virtual void moves() {}
  /// What agree() began is over; `well`: the data has moved.
  virtual void ends(bool well) = 0;
  /// The session is over. Returns when no other member can be in the memory of ours any more (or does not move: then after a
  /// while).
  virtual void lost() {}
  /// This member can't take part: the others fail.
  virtual void decline(const CollectiveId& id) = 0;
  /// This member fails in the middle of what all have agreed on: the others can't be told, the session is over.
  /// @throws TransportError  always
  [[noreturn]] virtual void broken(const std::string& why) = 0;
  /// @throws UsageError  none is left
  virtual SubSlot free_slot() = 0;
  /// The communicators with these keys are no more; a later one with such a key counts its collectives from 0.
  virtual void forget(CommKey /*first*/, CommKey /*end*/) {}
  virtual Origin here() const = 0;  ///< this worker and the command it runs
};

/// Thrown out of a collective that another member's failure has ended. Not reported again: its origin is.
class ConsequenceError : public RemoteError {
 public:
  ConsequenceError(Origin origin, const std::string& message) : RemoteError(message, {}), origin(origin) {}
  Origin origin;
};

}  // namespace tutti
