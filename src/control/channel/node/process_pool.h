#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "control/segment/segment.h"
#include "core/handle.h"

namespace tutti::detail {

/// A worker process of this machine: the program, executed again, inside tutti::run. It ends when the controller shuts its socket
/// down, or ends.
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
  void end_all();  ///< and waits for them to end, with a limit; exit() does the same

 private:
  WorkerProcess start();
  std::mutex mutex_;
  uint32_t generation_ = 0;  // of the process whose children the workers are
  std::vector<std::string> program_;
  std::vector<WorkerProcess> idle_;
};

/// Tells a process to serve as `worker` of a session whose segment lies behind `fd` of this process.
void start_session(const WorkerProcess& process, const Segment& segment, int worker);
/// Waits for the process to say that it is in (or out of) the session.  @throws TransportError  it ended, or was silent
void await_answer(const WorkerProcess& process, int worker, std::chrono::milliseconds timeout);
void kill_process(pid_t pid) noexcept;  ///< and reaps it
/// How the process ended ("killed by signal 9 (Killed)", "exit code 3"), or nothing while it lives. Reaps it.
std::optional<std::string> how_it_ended(pid_t pid);

/// Whether this process is one of another's pool; then serves until the other goes.
std::optional<int> serve_if_worker_process();

}  // namespace tutti::detail
