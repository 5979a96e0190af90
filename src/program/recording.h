#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/controller/controller.h"
#include "tutti/program.h"

namespace tutti::detail {

/// What the controller knows of a program.
struct AboutProgram {
  std::shared_ptr<Controller> controller;
  std::string name;
  size_t size = 0;  // steps
  std::vector<std::string> slots;
};

/// The controller's half of a program: takes calls as steps, and gives out the registers that these write. These belong to the
/// program; a register whose handles are all gone is used again by later steps.
class ProgramRecorder : public Controller::Capture {
 public:
  ProgramRecorder(std::shared_ptr<Controller> controller, std::string name, Where where);

  DRef call(const DRef& func, Args args, Where where) override;
  std::string began() const override { return began_; }

  DRef slot(std::string_view name);
  void assign(const DRef& slot, const Value& value, Where where);
  void stop_when(const DRef& flag, Where where);
  void returns(const DRef& value);
  Program finish(Where where);

 private:
  /// Registers whose handles are gone since the last step.
  struct Gone {
    SpinLock mutex;
    std::vector<int64_t> ids;
    void add(int64_t id) noexcept;  ///< any thread
  };
  bool is_kept(int64_t id) const;
  std::vector<int64_t> take_gone();
  DRef handle(int64_t id);
  int64_t next_register();
  void keep(const Value& value);

  std::shared_ptr<Controller> controller_;
  std::string name_, began_;
  List steps_;  // each: bytes of the command, where it was recorded, whether its result may stop a replay
  std::vector<int64_t> slots_, returned_;
  std::vector<std::string> slot_names_;
  std::shared_ptr<Gone> gone_ = std::make_shared<Gone>();
  std::vector<int64_t> reusable_;
  std::map<int64_t, DRef> own_;
  std::map<int64_t, std::shared_ptr<const void>> used_;  // registers of others
  int64_t writes_ = 0;                                   // what the next step writes; 0: a register of its own
  bool stops_ = false;                                   // the next step
};

}  // namespace tutti::detail
