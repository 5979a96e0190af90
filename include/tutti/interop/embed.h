// For what embeds tutti into an interpreter, as tutti's own Python package does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/export.h"
#include "tutti/session.h"

namespace tutti::interop {

/// What an interpreter with a lock of its own (Python's) needs of a controller that waits. Each is called on the controller's
/// thread.
struct Interpreter {
  void (*let_go)() = nullptr;  ///< a wait begins: worker 0 may need the lock. Called also where the thread does not hold it
  void (*take)() = nullptr;    ///< it has ended; paired with let_go
  void (*interrupted)() =
      nullptr;  ///< every 50 ms of a wait, without the lock. What it throws ends the call as a TimeoutError would
  /// For hang reports: a thread that gets this signal appends its stack to this file, as Python's faulthandler does. 0: there is
  /// none.
  int stack_signal = 0, stack_fd = -1;
};
TUTTI_API void set_interpreter(const Interpreter& interpreter);

/// How ProcessSession starts this program again as a worker, in the place of tutti::run's own argv. It must call tutti::run.
TUTTI_API void set_worker_program(std::vector<std::string> arguments);

/// The two halves of tutti::run, for a program whose controller is not a function. Rank 0 goes on with nothing; on other ranks,
/// and in a worker process of a ProcessSession, this serves until rank 0 ends the job and returns the code to exit with.
TUTTI_API std::optional<int> start_job(int* argc, char*** argv, const RunOptions& options = {});
/// On rank 0, when its sessions are shut down: sends the others home. `code`: what the program will exit with.
TUTTI_API void end_job(int code);

}  // namespace tutti::interop
