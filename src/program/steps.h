#pragma once

#include <set>
#include <string>
#include <vector>

#include "control/wire/command.h"
#include "control/worker/replayed.h"
#include "control/worker/worker.h"

namespace tutti::detail {

inline constexpr int64_t kCall = -1;  ///< in the place of a number of iterations: one, and its results are returned

/// A worker's half of a program. Its arguments are the slots' values, the number of iterations, and perhaps a shape: registers
/// that nobody reads any more between replays.
class Steps : public Replayed {
 public:
  struct Step {
    Command command;
    Function function = {};  ///< that ran last, and what it holds
    const Function::Callable* callable = nullptr;
    const Function::Options* options = nullptr;
    const ShortName* short_name = nullptr;
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
    Collectives::Planned planned = {};  ///< if the function is a collective
  };
  /// Of the slots, of the results, to be freed after the last step, and to be set then.
  struct Registers {
    Shape slots, returned, freed, assigned;
  };
  /// `assigned`: its arguments are what those registers get.
  Steps(Worker& worker, std::string name, std::vector<Step> steps, Step assigned, Registers ids);
  Value run(Args args) override;
  void lose_results(RegisterFile& registers, int worker, Origin origin) override;
  void forget_failure() override { failed_seq_ = 0; }

 private:
  class Run;
  struct Place {
    int64_t iteration = 0;
    size_t step = 0;
  };
  void prepare(Step& step, const std::set<int64_t>& written);
  bool note_registers(const Value& arg);
  static void take_function(Step& step, const Function& function);
  void begin_iteration();
  bool run(Step& step);
  /// @returns whether all are what they were when it was last called
  bool make_arguments(Step& step, int written_arg);
  static void drop_arguments(Step& step, bool all);
  static const Tensor* written_by(const Step& step);
  Value call_and_plan(Step& step);
  bool run_planned(Step& step);
  void record(Record::State state);
  void assign();
  void free(std::span<const int64_t> ids);
  Value returned() const;
  void note_failure() noexcept;

  Worker& worker_here() const;

  Worker& worker_;
  uint64_t serial_;   // of the worker
  int64_t register_;  // that holds the program
  RegisterFile& registers_;
  Registers ids_;
  std::string name_;
  ShortName short_name_;  // its end: a line is there
  std::vector<Step> steps_;
  Step assigned_;
  Shape made_results_;  // those that steps write
  bool is_running_ = false;
  int64_t times_ = 0;
  bool may_record_ = false, records_ = false;  // this iteration's steps, in the flight recorder
  uint64_t begin_ = 0;                         // of the step, then
  uint64_t recorded_ = 0;                      // when the last iteration was that is
  size_t until_look_ = 0;                      // iterations, at the clock
  Place at_;
  uint64_t failed_seq_ = 0;  // of the command in which it failed last, there
};

}  // namespace tutti::detail
