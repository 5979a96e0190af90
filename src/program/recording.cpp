#include "program/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "core/items.h"

namespace tutti::detail {
namespace {

std::string text(Where where) { return where.line ? fmt::format("{}:{}", where.file, where.line) : ""; }

}  // namespace

ProgramRecorder::ProgramRecorder(std::shared_ptr<Controller> controller, std::string name, Where where)
    : controller_(std::move(controller)), name_(std::move(name)), began_(text(where)) {
  if (name_.empty()) name_ = began_.substr(began_.rfind('/') + 1);
}

void ProgramRecorder::Gone::add(int64_t id) noexcept try {
  const std::lock_guard lock(mutex);
  ids.push_back(id);
} catch (const std::bad_alloc&) {  // it is not used again, nothing else
}

/// Whether it holds a value over the steps between its handle's end and the program's.
bool ProgramRecorder::is_kept(int64_t id) const {
  return std::ranges::find(slots_, id) != slots_.end() || std::ranges::find(returned_, id) != returned_.end();
}

/// Those that nobody needs any more.
std::vector<int64_t> ProgramRecorder::take_gone() {
  const std::lock_guard lock(gone_->mutex);
  std::vector<int64_t> ids = std::exchange(gone_->ids, {});
  std::erase_if(ids, [this](int64_t id) { return is_kept(id); });
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
  command.freed = take_gone();
  reusable_.insert(reusable_.end(), command.freed.begin(), command.freed.end());
  keep(func);
  for (const Value& arg : args) keep(arg);
  command.reg = writes_ ? writes_ : next_register();
  steps_.push_back(List{encode(command), text(where), stops_});
  return handle(command.reg);
}

DRef ProgramRecorder::slot(std::string_view name) {
  const int64_t id = next_register();
  slots_.push_back(id);
  slot_names_.emplace_back(name.empty() ? fmt::format("{}", slots_.size()) : std::string(name));
  return handle(id);
}

void ProgramRecorder::assign(const DRef& slot, const Value& value, Where where) {
  controller_->check(slot, "assign: slot");
  const int64_t id = Controller::id_of(slot);
  if (std::ranges::find(slots_, id) == slots_.end())
    throw UsageError("assign: the register is no slot of this recording; slot() makes one");
  const struct Writes {
    int64_t& which;
    Writes(int64_t& which, int64_t id) : which(which) { which = id; }
    ~Writes() { which = 0; }
  } writes(writes_, id);
  controller_->call_builtin("same", List{value}, where);
}

void ProgramRecorder::stop_when(const DRef& flag, Where where) {
  const struct Stops {
    bool& which;
    explicit Stops(bool& which) : which(which) { which = true; }
    ~Stops() { which = false; }
  } stops(stops_);
  controller_->call_builtin("stop_when", List{flag}, where);
}

void ProgramRecorder::returns(const DRef& value) {
  controller_->check(value, "returns");
  returned_.push_back(Controller::id_of(value));
  keep(value);
}

Program ProgramRecorder::finish(Where where) {
  controller_->release(*this);
  const std::string name = "program " + name_;
  const auto ids = [](const std::vector<int64_t>& list) { return Shape(list.begin(), list.end()); };
  const DRef made =
      controller_->call_builtin_at_once("program", List{name, steps_, ids(slots_), ids(returned_), ids(take_gone())}, where);
  Program program;
  static_cast<DRef&>(program) = Controller::watched(made, [own = std::move(own_), used = std::move(used_)](int64_t) {});
  program.about_ = std::make_shared<const AboutProgram>(
      AboutProgram{.controller = controller_, .name = name_, .size = steps_.size(), .slots = slot_names_});
  return program;
}

}  // namespace tutti::detail
