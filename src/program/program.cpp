#include "tutti/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/recording.h"
#include "program/steps.h"

namespace tutti {

Recording Session::record(std::string_view name, Where where) {
  auto recorder = std::make_shared<detail::ProgramRecorder>(controller().shared_from_this(), std::string(name), where);
  controller().capture(recorder);
  return Recording(std::move(recorder));
}

bool Session::is_recording() const { return controller().is_recording(); }

detail::ProgramRecorder& Recording::recorder() const {
  if (!recorder_) throw UsageError("the recording is empty: it has ended, or was moved from");
  return *recorder_;
}

DRef Recording::slot(std::string_view name) { return recorder().slot(name); }
void Recording::assign(const DRef& slot, const Value& value) { recorder().assign(slot, value); }
void Recording::stop_when(const DRef& flag, Where where) { recorder().stop_when(flag, where); }
void Recording::returns(const DRef& value) { recorder().returns(value); }
Program Recording::finish(Where where) {
  recorder();
  return std::exchange(recorder_, nullptr)->finish(where);
}

const detail::AboutProgram& Program::about() const {
  if (!about_) throw UsageError("the program is empty");
  return *about_;
}
const std::string& Program::name() const { return about().name; }
size_t Program::size() const { return about().size; }
const std::vector<std::string>& Program::slots() const { return about().slots; }

DRef Program::call(Args values, Where where) const { return replay(detail::kCall, values, where); }
DRef Program::repeat(int64_t times, const List& values, Where where) const {
  if (times < 0) throw UsageError(fmt::format("repeat: {} times, expected 0 or more", times));
  return replay(times, values, where);
}

DRef Program::replay(int64_t times, Args values, Where where) const {
  if (values.size() != about().slots.size())
    throw UsageError(fmt::format("program {}: expected {} values ({}), got {}", about().name, about().slots.size(),
                                 fmt::join(about().slots, ", "), values.size()));
  const std::vector<int64_t> gone = about().gone->take();
  List args(values.begin(), values.end());
  args.emplace_back(times);
  if (!gone.empty()) args.emplace_back(Shape(gone.begin(), gone.end()));
  try {
    return about().controller->call(*this, args, where, ("program " + about().name).c_str());
  } catch (...) {
    for (const int64_t id : gone) about().gone->add(id);
    throw;
  }
}

}  // namespace tutti
