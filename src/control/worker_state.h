#pragma once

#include <span>
#include <string>
#include <vector>

#include "control/segment.h"

namespace tutti {

/// What a worker does at a moment, as its node's shared memory says: true also of one that is stuck or dead.
struct WorkerState {
  enum class Kind : uint8_t { kUnknown, kIdle, kComputes, kWaits, kMoves };
  int32_t worker = -1;
  Kind kind = Kind::kUnknown;
  std::string host;
  int64_t pid = 0;
  uint64_t finished = 0, seq = 0;    ///< last command done; the one it runs
  std::string doing;                 ///< computing: the function or action. In a collective: its operation and operands
  double seconds = 0;                ///< how long
  std::string line;                  ///< of an interpreter's program: "train.py:31 in step"
  CollectiveId id;                   ///< of the collective it waits or moves data in
  std::vector<int32_t> members;      ///< its
  std::vector<CollectiveId> left;    ///< of this command, without success
  std::vector<CollectiveId> joined;  ///< the latest, which a peer may not have seen yet
};
void encode(Writer& out, const WorkerState& state);
WorkerState decode_worker_state(Reader& in);

std::vector<WorkerState> look_at(Segment& segment);  ///< the workers of its node
std::string last_seen(Segment& segment,
                      int worker);  ///< "in test.f of command 5", "between commands": for the message that it was lost

/// One line a worker: where it is, what it does, for how long, whom it waits for. Workers without a state have not answered.
std::string hang_report(std::span<const WorkerState> states, int num_workers, uint64_t issued);

/// The members that have not come to the collective that `state` waits in.
std::vector<int32_t> missing_in(const WorkerState& state, std::span<const WorkerState> states);

std::string describe(const CollectiveId& id, const Signature& signature);  ///< "allreduce #0 (sum float32 x 1000)"

}  // namespace tutti
