#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "control/controller/controller.h"
#include "tutti/program.h"

namespace tutti::detail {

/// Registers of a program whose handles are gone, so that nobody else needs them.
class Gone {
 public:
  void add(int64_t id) noexcept;  ///< any thread
  void keep(int64_t id);          ///< the program needs it all the same
  std::vector<int64_t> take();    ///< those that came since the last time

 private:
  SpinLock mutex_;
  std::vector<int64_t> ids_;
  std::set<int64_t> kept_;
};

/// What the controller knows of a program.
struct AboutProgram {
  std::shared_ptr<Controller> controller;
  std::string name;
  size_t size = 0;  // steps
  std::vector<std::string> slots;
  std::shared_ptr<Gone> gone;
};

/// The controller's half of a program: takes calls as steps, and gives out the registers that these write. These belong to the
/// program; a register whose handles are all gone is used again by later steps.
class ProgramRecorder : public Controller::Capture {
 public:
  ProgramRecorder(std::shared_ptr<Controller> controller, std::string name, Where where);

  ~ProgramRecorder() override;

  DRef call(const DRef& func, Args args, Where where) override;
  std::string began() const override { return began_; }

  DRef slot(std::string_view name);
  void assign(const DRef& slot, const Value& value);
  void stop_when(const DRef& flag, Where where);
  void returns(const DRef& value);
  Program finish(Where where);

 private:
  DRef handle(int64_t id);
  int64_t next_register();
  int64_t new_register();
  void keep(const Value& value);
  void keep_own(const Value& value);

  std::shared_ptr<Controller> controller_;
  std::string name_, began_;
  List steps_;  // each: bytes of the command, where it was recorded, whether its result may stop a replay
  std::vector<int64_t> slots_, returned_;
  std::map<int64_t, Value> assigned_;  // slots, at the end of each iteration
  std::vector<std::string> slot_names_;
  std::shared_ptr<Gone> gone_ = std::make_shared<Gone>();
  std::vector<int64_t> reusable_;
  std::set<int64_t> before_stop_;  // written by steps that come before one that may end a replay
  std::map<int64_t, DRef> own_;
  std::map<int64_t, std::shared_ptr<const void>> used_;  // registers of others
  bool stops_ = false;                                   // the next step
};

}  // namespace tutti::detail
