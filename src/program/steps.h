#pragma once

#include <string>
#include <vector>

#include "control/wire/command.h"
#include "control/worker/replayed.h"
#include "control/worker/worker.h"

namespace tutti::detail {

inline constexpr int64_t kCall = -1;  ///< in the place of a number of iterations: one, and its results are returned

/// A worker's half of a program. Its arguments are the number of iterations, then the slots' values.
class Steps : public Replayed {
 public:
  struct Step {
    Command command;
    std::string site;    ///< where it was recorded
    bool stops = false;  ///< if its result is true
    List args = {};      ///< the command's, as its function gets them
    struct Made {        ///< of those that are not the same each time
      size_t position;
      bool has_arrays;        ///< of its own, into which the function may write
      int64_t reg = 0;        ///< that it refers to; 0: to several, or to none
      bool changes = true;    ///< the register does, from one iteration to the next
      bool is_there = false;  ///< the argument, of this version of the register
      uint32_t version = 0;
    };
    std::vector<Made> made = {};
  };
  /// What slots, results and what is free after the last step are: registers.
  struct Registers {
    Shape slots, returned, freed;
  };
  Steps(Worker& worker, std::string name, std::vector<Step> steps, Registers ids);
  Value run(Args args) override;
  void lose_results(RegisterFile& registers, int worker, Origin origin) override;

 private:
  class Run;
  struct Place {
    int64_t iteration = 0;
    size_t step = 0;
  };
  bool note_registers(const Value& arg);
  bool run(Step& step);
  void make_arguments(Step& step, int written_arg);
  static void drop_arguments(Step& step, bool all);
  void record();
  void free(std::span<const int64_t> ids);
  Value returned() const;
  void note_failure() noexcept;

  Worker& worker_;
  RegisterFile& registers_;
  Registers ids_;
  std::string name_;
  ShortName short_name_{name_};
  std::vector<Step> steps_;
  bool is_running_ = false;
  int64_t times_ = 0;
  bool records_ = false;  // this iteration's steps, in the flight recorder
  uint64_t begin_ = 0;    // of the step, then
  Place at_;
  uint64_t failed_seq_ = 0;  // of the command in which it failed last, there
};

}  // namespace tutti::detail
