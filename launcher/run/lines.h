#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "run/options.h"

namespace tutti::launcher {

/// Makes a rank's lines fit for `mpirun --tag-output`, which writes its tag before each of a piece of 4 KiB into a buffer of 8 KiB and loses what is
/// more: lines get a mark at their end, and short ones are filled up.
class LineMarker {
 public:
  std::string feed(std::string_view text);
  std::string finish();  ///< what has no newline yet, as a line
  bool has_begun() const { return !begun_.empty(); }
  std::string begun() { return std::exchange(begun_, {}); }  ///< what has no newline yet; the rest of the line follows

 private:
  std::string begun_;
};

/// Ranks' output as a launcher mixes it, back into lines that are whole. mpirun --tag-output marks every piece ("[1,3]<stdout>:"), which may
/// begin and end inside a line; srun --label marks lines ("3: "). What LineMarker adds goes.
class Untangler {
 public:
  static constexpr int kLauncher = -1;  ///< the launcher's own words
  using Sink = std::function<void(int rank, std::string_view line)>;  ///< without the newline

  Untangler(Launcher by, Sink sink) : by_(by), sink_(std::move(sink)) {}
  void feed(std::string_view text);
  void finish();  ///< what has no newline yet

 private:
  size_t read_tag(std::string_view text);
  void end_line();

  Launcher by_;
  Sink sink_;
  std::string pending_;  // perhaps the begin of a tag
  int speaker_ = kLauncher;
  bool at_start_ = true;  // of a line of srun's
  std::map<int, std::string> lines_;
};

/// What srun says of a task's end, as an exit code: "srun: error: n3: task 2: Exited with exit code 5", "...: Killed". Its own exit code is the
/// largest of all tasks, those included that it ended because of the first.
std::optional<int> end_of_task(std::string_view line);

/// mpirun's words on MPI_Abort: "with errorcode 7." From here it ends the job, for which it waits for all hosts: for minutes if one is cut off.
std::optional<int> code_of_abort(std::string_view line);

/// Slurm's words of a task on a program that can't be started, as a shell's exit code: 127 if there is none, else 126.
std::optional<int> code_of_start(std::string_view line);

}  // namespace tutti::launcher
