#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::launcher {

/// What several speakers say in pieces, as whole lines.
class Lines {
 public:
  using Sink = std::function<void(int speaker, std::string_view line)>;  ///< without the newline

  explicit Lines(Sink sink) : sink_(std::move(sink)) {}
  void add(int speaker, std::string_view text);
  void finish();  ///< what has no newline yet

 private:
  Sink sink_;
  std::map<int, std::string> begun_;
};

/// A line of `srun --label` ("3: text"): the rank takes its label off. Without a label it is srun's own: nothing.
std::optional<int> take_label(std::string_view& line);

/// What srun says of a task's end, as an exit code: "srun: error: n3: task 2: Exited with exit code 5", "...: Killed". Its own
/// exit code is the largest of all tasks, those included that it ended because of the first.
std::optional<int> end_of_task(std::string_view line);

/// mpirun's words on MPI_Abort: "with errorcode 7.", since Open MPI 5 "  Errorcode: 7". From here it ends the job, for which it
/// waits for all hosts: for minutes if one is cut off.
std::optional<int> code_of_abort(std::string_view line);

/// The words of Open MPI 5's mpirun on MPI_Abort; the code is in the rank's own.
bool tells_of_abort(std::string_view line);

/// The words of Open MPI 5's mpirun on a host that it has lost; it returns 0 then.
bool tells_of_lost_host(std::string_view line);

/// Slurm's words of a task on a program that can't be started, as a shell's exit code: 127 if there is none, else 126.
std::optional<int> code_of_start(std::string_view line);

}  // namespace tutti::launcher
