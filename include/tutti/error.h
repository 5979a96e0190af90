#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tutti/export.h"

namespace tutti {

/// Base of everything tutti throws. what() says rank and host where known, what was expected, what came, what to do. A NUL in a
/// message is shown as \0: what() would end there.
class TUTTI_API Error : public std::runtime_error {
 public:
  explicit Error(const char* message) : std::runtime_error(message) {}
  explicit Error(const std::string& message) : std::runtime_error(without_nul(message)) {}

 private:
  [[gnu::noinline]] static std::string without_nul(std::string text) {
    for (size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\0");
    return text;
  }
};

/// The caller broke a contract: checked before anything is sent. Nothing has changed.
class TUTTI_API UsageError : public Error {
 public:
  using Error::Error;
};

/// A limit that the caller gave has passed. The operation goes on: calling again waits again.
class TUTTI_API TimeoutError : public Error {
 public:
  using Error::Error;
};

/// The job is to make room, and the session has been shut down for it (Session::on_preemption). Left to tutti::run it becomes
/// exit code 75, which schedulers know as "try again later".
class TUTTI_API Preempted : public Error {
 public:
  using Error::Error;
};

/// A peer or MPI was lost: the session is over.
class TUTTI_API TransportError : public Error {
 public:
  using Error::Error;
};

/// The operating system refused something.
class TUTTI_API SystemError : public Error {
 public:
  using Error::Error;
};

/// A function of a module failed, or returned what is no value. On the controller it arrives as a WorkerFailure.
class TUTTI_API ModuleError : public Error {
 public:
  ModuleError(std::string kind, const std::string& message, std::string traceback)
      : Error(message), kind_(std::move(kind)), traceback_(std::move(traceback)) {}
  const std::string& kind() const { return kind_; }            ///< in the module's words, e.g. "ValueError"
  const std::string& traceback() const { return traceback_; }  ///< the module's, may be empty

 private:
  std::string kind_, traceback_;
};

/// One failure on one worker, as it travels to the controller.
struct WorkerFailure {
  int worker = 0;
  uint64_t seq = 0;  ///< the command that failed: (worker, seq) names the origin
  std::string host;
  int64_t pid = 0;
  std::string kind;  ///< type of what was thrown, e.g. "std::out_of_range"
  std::string message;
  std::string function;   ///< the function that ran, or the action
  std::string issued_at;  ///< file:line where the controller issued the command
  std::string traceback;  ///< of the worker, where there is one
};

/// Worker functions failed. On the controller: raised once by a synchronising call; equal failures are folded ("workers 0-7").
/// In a worker function: a collective failed because another member did (failures() is empty then).
class TUTTI_API RemoteError : public Error {
 public:
  explicit RemoteError(std::vector<WorkerFailure> failures);
  const std::vector<WorkerFailure>& failures() const { return failures_; }
  std::vector<int> workers() const;  ///< sorted, each once

 protected:
  RemoteError(const std::string& message, std::vector<WorkerFailure> failures) : Error(message), failures_(std::move(failures)) {}

 private:
  std::vector<WorkerFailure> failures_;
};

}  // namespace tutti
