#pragma once

#include <string>

#include "control/segment.h"

namespace tutti {

/// Files of the flight recorders: one JSON file a worker and dump, `tutti-JOB-SESSION-DUMP-worker-ID.json`, mode 0600. What is in
/// them: docs/formats.md.
struct TraceDump {
  std::string folder;
  uint32_t number = 0;    ///< of that session, from 0
  std::string reason;     ///< "error", "time-out", "SIGUSR2", "shutdown", "lost"
};
void encode(Writer& out, const TraceDump& dump);
TraceDump decode_trace_dump(Reader& in);

/// Writes what the workers of this node did. Errors are logged: a full disk ends no session.
void write_traces(Segment& segment, const TraceDump& dump) noexcept;
/// The same when the session is lost and the controller out of reach: into the folder that TUTTI_TRACE names here, if it does.
void write_last_traces(Segment& segment) noexcept;

inline constexpr uint32_t kMostDumps = 100;  ///< of a session that fails again and again; the last ones have this number

}  // namespace tutti
