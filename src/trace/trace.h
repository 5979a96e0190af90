// Reads the files of the flight recorders (control/watch/trace_file.h) and says what happened.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::trace {

struct Event {
  uint64_t number = 0, command = 0;
  std::string state;  ///< running, done, failed, skipped
  int64_t begin = 0;  ///< ns since 1970
  std::optional<int64_t> agreed, end;
  std::string what;  ///< a command's function or action, a collective's name
  bool is_collective = false;
  uint32_t step = 0;          ///< of a recorded program, from 1; else it is a command or a collective
  uint64_t communicator = 0;  ///< the rest: a collective's
  uint32_t index = 0;
  int64_t count = 0;
  std::string dtype, op;
  int32_t root = 0;
};

struct Worker {
  std::string host;
  int64_t pid = 0;
  uint64_t finished = 0;
  int64_t written = 0;               ///< of the last dump
  std::map<uint64_t, Event> events;  ///< by number: of all dumps
};

struct Session {
  std::string job;
  uint64_t number = 0;
  int workers = 0, groups = 1;
  std::vector<std::string> reasons;  ///< of its dumps, in order
  std::map<int32_t, Worker> by_worker;
};

/// All `tutti-*.json` files of a folder, dumps of a session merged. Files that can't be read, or are no traces, are told in
/// `problems`.
/// @throws UsageError, SystemError  no trace at all
std::vector<Session> read_folder(const std::string& folder, std::vector<std::string>& problems);
Session read_text(const std::string& content, const std::string& name);  ///< one file.  @throws UsageError

/// What happened, in words: the first failing command, who is behind, collectives that do not fit together or lack members.
std::string report(const Session& session);

/// Chrome's trace format (Perfetto reads it): a process per worker, its commands and its collectives as threads.
std::string timeline(const std::vector<Session>& sessions);

}  // namespace tutti::trace
