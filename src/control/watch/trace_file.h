#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "core/wire.h"

namespace tutti::detail {

class Segment;

/// Files of the flight recorders: one JSON file a worker and dump, `tutti-JOB-SESSION-DUMP-worker-ID.json`, mode 0600. What is in
/// them: docs/formats.md.
struct TraceDump {
  uint32_t number = 0;  ///< of that session, from 0
  std::string reason;   ///< "error", "time-out", "SIGUSR2", "shutdown", "lost"
};
void encode(Writer& out, const TraceDump& dump);
TraceDump decode_trace_dump(Reader& in);

/// Writes what the workers of this node did into the folder that the layout names, if it does. Errors are logged: a full disk
/// ends no session.
void write_traces(Segment& segment, const TraceDump& dump) noexcept;
/// Does it in a thread of its own: folders can be slow, and who asks is in a hurry.
class TraceWriter {
 public:
  explicit TraceWriter(Segment& segment) : segment_(segment) {}
  ~TraceWriter();  ///< once all that was asked for is written
  void write(TraceDump dump);

 private:
  void run();
  Segment& segment_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  std::deque<TraceDump> dumps_;
  bool ends_ = false;
  std::thread thread_;  // from the first dump on
};

inline constexpr uint32_t kMostDumps = 100;  ///< of a session that fails again and again; the last ones have this number

}  // namespace tutti::detail
