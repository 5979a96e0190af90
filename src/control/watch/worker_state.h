#pragma once

#include <span>
#include <string>
#include <vector>

#include "agreement/deadlock.h"
#include "core/wire.h"

namespace tutti::detail {

class Segment;

/// What a worker does at a moment, as its node's shared memory says: true also of one that is stuck or dead.
struct WorkerState : MemberState {
  std::string host;
  int64_t pid = 0;
  uint64_t finished = 0, seq = 0;  ///< last command done; the one it runs
  double seconds = 0;              ///< how long
  std::string line;                ///< of an interpreter's program: "train.py:31 in step"
};
void encode(Writer& out, const WorkerState& state);
WorkerState decode_worker_state(Reader& in);

std::vector<WorkerState> look_at(Segment& segment);  ///< the workers of its node
std::string last_seen(Segment& segment,
                      int worker);  ///< "in test.f of command 5", "between commands": for the message that it was lost

/// One line a worker: where it is, what it does, for how long, whom it waits for. Workers without a state have not answered.
std::string hang_report(std::span<const WorkerState> states, int num_workers, uint64_t issued);

}  // namespace tutti::detail
