#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "control/segment.h"
#include "core/handle.h"

namespace tutti {

/// A worker process of this machine: the program, executed again, inside tutti::run. We hold the other end of its socket;
/// when that closes, for whatever reason, the process ends.
struct WorkerProcess {
  pid_t pid = -1;
  Fd socket;
};

/// Worker processes that wait for their next session. One pool per process.
class ProcessPool {
 public:
  static ProcessPool& instance();
  void remember_program(std::vector<std::string> arguments);  ///< what to execute
  /// Started ones first, new ones where they don't suffice.  @throws UsageError (no tutti::run), SystemError
  std::vector<WorkerProcess> take(size_t count);
  void give_back(std::vector<WorkerProcess> processes);
  void end_all();

 private:
  WorkerProcess start();
  std::mutex mutex_;
  std::vector<std::string> program_;
  std::vector<WorkerProcess> idle_;
};

/// Tells a process to serve as `worker` of a session whose segment lies behind `fd` of this process.
void start_session(const WorkerProcess& process, const Segment& segment, int worker);
/// Waits for the process to say that it is in (or out of) the session.  @throws TransportError  it ended, or was silent
void await_answer(const WorkerProcess& process, int worker, std::chrono::milliseconds timeout);
/// How the process ended ("killed by signal 9 (Killed)", "exit code 3"), or nothing while it lives. Reaps it.
std::optional<std::string> how_it_ended(pid_t pid);

/// Whether this process is one of another's pool; then serves until the other goes.
std::optional<int> serve_if_worker_process();

}  // namespace tutti
