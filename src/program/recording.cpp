#include "program/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>

#include "core/items.h"

namespace tutti::detail {
namespace {

std::string text(Where where) { return where.line ? fmt::format("{}:{}", where.file, where.line) : ""; }

}  // namespace

ProgramRecorder::~ProgramRecorder() { controller_->forget(*this); }

ProgramRecorder::ProgramRecorder(std::shared_ptr<Controller> controller, std::string name, Where where)
    : controller_(std::move(controller)), name_(std::move(name)), began_(text(where)) {
  if (name_.empty()) name_ = began_.substr(began_.rfind('/') + 1);
}

void Gone::add(int64_t id) noexcept try {
  const std::lock_guard lock(mutex_);
  ids_.push_back(id);
} catch (const std::bad_alloc&) {  // it is not used again, nothing else
}

void Gone::keep(int64_t id) {
  const std::lock_guard lock(mutex_);
  kept_.insert(id);
}

std::vector<int64_t> Gone::take() {
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> ids = std::exchange(ids_, {});
  std::erase_if(ids, [this](int64_t id) { return kept_.contains(id); });
  return ids;
}

DRef ProgramRecorder::handle(int64_t id) {
  return Controller::watched(own_.at(id), [gone = gone_](int64_t id) { gone->add(id); });
}

int64_t ProgramRecorder::next_register() {
  if (!reusable_.empty()) {
    const int64_t id = reusable_.back();
    reusable_.pop_back();
    return id;
  }
  return new_register();
}

int64_t ProgramRecorder::new_register() {
  DRef made = controller_->new_register();
  const int64_t id = Controller::id_of(made);
  own_.emplace(id, std::move(made));
  return id;
}

/// The registers of others in it.
void ProgramRecorder::keep(const Value& value) {
  each_item(value, [this](const Value& item) { keep(item); });
  const auto* ref = std::get_if<RegisterRef>(&value.data());
  if (ref && !own_.contains(ref->id)) used_[ref->id] = ref->keeps_alive;
}

DRef ProgramRecorder::call(const DRef& func, Args args, Where where) {
  Command command{.action = Action::kCallPacked, .func = Controller::id_of(func), .args = List(args.begin(), args.end())};
  command.freed = gone_->take();
  std::ranges::copy_if(command.freed, std::back_inserter(reusable_), [this](int64_t id) { return !before_stop_.contains(id); });
  keep(func);
  for (const Value& arg : args) keep(arg);
  command.reg = next_register();
  steps_.push_back(List{encode(command), text(where), stops_});
  return handle(command.reg);
}

DRef ProgramRecorder::slot(std::string_view name) {
  const std::string text = name.empty() ? fmt::format("{}", slots_.size() + 1) : std::string(name);
  if (std::ranges::find(slot_names_, text) != slot_names_.end())
    throw UsageError(fmt::format("slot: the recording has a slot '{}' already; give each a name of its own", text));
  const int64_t id = new_register();  // no step before has written it
  gone_->keep(id);
  slots_.push_back(id);
  slot_names_.push_back(text);
  return handle(id);
}

void ProgramRecorder::assign(const DRef& slot, const Value& value) {
  controller_->check(slot, "assign: slot");
  controller_->check_arguments(Args(&value, 1), "assign");
  const int64_t id = Controller::id_of(slot);
  if (std::ranges::find(slots_, id) == slots_.end())
    throw UsageError("assign: the register is no slot of this recording; slot() makes one");
  keep(value);
  keep_own(value);
  assigned_.insert_or_assign(id, value);
}

/// Over the steps between the end of their handles and the iteration's.
void ProgramRecorder::keep_own(const Value& value) {
  each_item(value, [this](const Value& item) { keep_own(item); });
  const auto* ref = std::get_if<RegisterRef>(&value.data());
  if (ref && own_.contains(ref->id)) gone_->keep(ref->id);
}

void ProgramRecorder::stop_when(const DRef& flag, Where where) {
  const struct Stops {
    bool& which;
    explicit Stops(bool& which) : which(which) { which = true; }
    ~Stops() { which = false; }
  } stops(stops_);
  controller_->call_builtin("stop_when", List{flag}, where);
  // a step that a replay does not reach leaves its register as it was: no other step's value is to be there
  reusable_.clear();
  for (const auto& [id, ref] : own_) before_stop_.insert(id);
}

void ProgramRecorder::returns(const DRef& value) {
  controller_->check(value, "returns");
  keep(value);
  keep_own(value);
  returned_.push_back(Controller::id_of(value));
}

Program ProgramRecorder::finish(Where where) {
  controller_->release(*this);
  Command assigned{.action = Action::kCallPacked};
  Shape to;
  for (auto& [slot, value] : assigned_) {
    to.push_back(slot);
    assigned.args.push_back(std::move(value));
  }
  const auto ids = [](const std::vector<int64_t>& list) { return Shape(list.begin(), list.end()); };
  const DRef made = controller_->call_builtin_at_once(
      "program", List{name_, steps_, encode(assigned), List{ids(slots_), ids(returned_), ids(gone_->take()), std::move(to)}},
      where);
  assigned.args.clear();
  assigned_.clear();
  Program program;
  static_cast<DRef&>(program) = Controller::watched(made, [own = std::move(own_), used = std::move(used_)](int64_t) {});
  program.about_ = std::make_shared<const AboutProgram>(
      AboutProgram{.controller = controller_, .name = name_, .size = steps_.size(), .slots = slot_names_, .gone = gone_});
  return program;
}

}  // namespace tutti::detail
