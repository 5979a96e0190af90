#include "program/steps.h"

#include <fmt/format.h>

#include <exception>
#include <set>

#include "control/wire/tensors_inside.h"
#include "core/items.h"

namespace tutti::detail {
namespace {

bool has_arrays(const Value& arg) {
  bool has = false;
  each_tensor(arg, [&](const Tensor&) { has = true; });
  return has;
}

/// With copies of its arrays.
Value fresh(const Value& arg) {
  if (auto items = with_items(arg, fresh)) return *items;
  return arg.kind() == Value::Kind::kTensor ? copy_tensors(arg) : arg;
}

constexpr uint64_t kBetweenRecords = 2'000'000;  // ticks, about a millisecond
constexpr size_t kStepsToLook = 32;              // between looks at the clock

}  // namespace

/// Whether there are any. Registers that exist stay where they are while the steps run.
bool Steps::note_registers(const Value& arg) {
  bool any = false;
  each_item(arg, [&](const Value& item) { any |= note_registers(item); });
  const auto* ref = std::get_if<RegisterRef>(&arg.data());
  if (ref) registers_.get(ref->id);
  return any || ref;
}

Steps::Steps(Worker& worker, std::string name, std::vector<Step> steps, Step assigned, Registers ids)
    : worker_(worker),
      serial_(worker.serial()),
      register_(worker.result_register()),
      registers_(worker.registers()),
      ids_(std::move(ids)),
      name_(std::move(name)),
      steps_(std::move(steps)),
      assigned_(std::move(assigned)) {
  short_name_ = ShortName(std::string_view(name_).substr(name_.size() - std::min(name_.size(), sizeof(ShortName) - 1)));
  std::set<int64_t> written;
  for (const Step& step : steps_) {
    written.insert(step.command.reg);
    written.insert(step.command.freed.begin(), step.command.freed.end());
    registers_.get(step.command.func);
  }
  for (const int64_t id : ids_.returned)
    if (written.contains(id)) made_results_.push_back(id);
  for (const Shape* more : {&ids_.slots, &ids_.returned, &ids_.freed, &ids_.assigned}) written.insert(more->begin(), more->end());
  for (const int64_t id : written) registers_.get(id);
  for (Step& step : steps_) prepare(step, written);
  prepare(assigned_, written);
}

void Steps::prepare(Step& step, const std::set<int64_t>& written) {
  for (size_t i = 0; i < step.command.args.size(); ++i) {
    const Value& arg = step.command.args[i];
    step.args.push_back(arg);
    Step::Made made{i, has_arrays(arg)};
    if (const auto* ref = std::get_if<RegisterRef>(&arg.data())) {
      made.reg = ref->id;
      made.changes = written.contains(ref->id);
    }
    if (note_registers(arg) || made.has_arrays) step.made.push_back(made);
  }
}

/// A function of a worker may have kept the program: longer than its registers are the program's, or in another session.
Worker& Steps::worker_here() const {
  Worker* worker = Worker::current();
  const bool is_here = worker && worker->serial() == serial_;
  const auto* function = is_here ? std::get_if<Function>(&worker->registers().get(register_).value.data()) : nullptr;
  if (!function || Replayed::of(*function).get() != this)
    throw UsageError(fmt::format("program {} is not there any more, or belongs to another worker or thread", name_));
  return *worker;
}

/// From the first step to the last, or to an error. A program inside of another one has its place in the view meanwhile.
class Steps::Run {
 public:
  explicit Run(Steps& steps) : steps_(steps), view_(steps.worker_here().replay_view()) {
    if (steps.is_running_) throw UsageError(fmt::format("program {} can't replay itself", steps.name_));
    steps.is_running_ = true;
    steps.at_ = {};
    steps.may_record_ = steps.worker_.records_steps();  // an outer program's iteration may not
    steps.until_look_ = 0;
    for (size_t i = 0; i < std::size(outer_name_.words); ++i)
      outer_name_.words[i] = view_.program[i].load(std::memory_order_relaxed);
    outer_iteration_ = view_.iteration.load(std::memory_order_relaxed);
    outer_step_ = view_.step.load(std::memory_order_relaxed);
    view_.name(view_.program, steps.short_name_);
    if (outer_step_ == 0) view_.begin.store(ticks(), std::memory_order_relaxed);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    if (std::uncaught_exceptions() > exceptions_) steps_.note_failure();
    steps_.is_running_ = false;
    for (Step& step : steps_.steps_) drop_arguments(step, true);
    drop_arguments(steps_.assigned_, true);
    if (steps_.worker_.is_fork()) return;  // the view is its parent's
    steps_.worker_.run_quick(outer_is_quick_);
    steps_.worker_.record_steps(outer_records_);
    view_.name(view_.program, outer_name_);
    view_.iteration.store(outer_iteration_, std::memory_order_relaxed);
    view_.step.store(outer_step_, std::memory_order_relaxed);
  }

 private:
  Steps& steps_;
  ReplayView& view_;
  int exceptions_ = std::uncaught_exceptions();
  bool outer_is_quick_ = steps_.worker_.runs_quick();
  bool outer_records_ = steps_.worker_.records_steps();
  ShortName outer_name_;
  uint64_t outer_iteration_ = 0;
  uint32_t outer_step_ = 0;
};

Value Steps::run(Args args) {
  const size_t slots = ids_.slots.size();
  if (args.size() != slots + 1 && args.size() != slots + 2)
    throw UsageError(fmt::format("program {}: {} arguments, expected a value for each of {} slots, and the number of iterations",
                                 name_, args.size(), slots));
  const auto times = args[slots].as<int64_t>();
  const Run here(*this);
  times_ = times == kCall ? 1 : times;
  if (args.size() > slots + 1)
    for (const int64_t id : args[slots + 1].as<Shape>())
      if (std::ranges::find(ids_.freed, id) == ids_.freed.end()) ids_.freed.push_back(id);
  for (size_t i = 0; i < slots; ++i) registers_.set(ids_.slots[i], args[i]);
  free(made_results_);  // a replay that ends early has none
  ReplayView& view = worker_.replay_view();
  bool stops = false;
  for (; at_.iteration < times_ && !stops; ++at_.iteration) {
    begin_iteration();
    for (at_.step = 0; at_.step < steps_.size() && !stops; ++at_.step) {
      view.step.store(static_cast<uint32_t>(at_.step) + 1, std::memory_order_relaxed);
      stops = run(steps_[at_.step]);
      if (worker_.is_fork()) return {};
      if (records_) record(Record::State::kDone);
    }
    if (!stops) at_.step = steps_.size(), assign();
    free(ids_.freed);
  }
  if (times != kCall) return at_.iteration;
  at_.step = steps_.size();
  return returned();
}

/// Its steps are recorded if no other iteration's were for some time, so that the recorder and the clock cost nothing where steps
/// are short.
void Steps::begin_iteration() {
  worker_.check_alive();
  worker_.replay_view().iteration.store(static_cast<uint64_t>(at_.iteration) + 1, std::memory_order_relaxed);
  records_ = false;
  if (may_record_ && until_look_-- == 0) {
    until_look_ = kStepsToLook / (steps_.size() + 1);
    begin_ = ticks();
    records_ = at_.iteration == 0 || begin_ - recorded_ > kBetweenRecords;
    if (records_) recorded_ = begin_;
  }
  worker_.record_steps(records_);
}

/// A copy: it lives as long as it runs, whatever becomes of its register.
void Steps::take_function(Step& step, const Function& function) {
  step.function = function;
  step.planned = {};
  step.callable = FunctionParts::callable(function);
  step.options = &step.function.options();
  step.short_name = &FunctionParts::short_name(step.function);
}

bool Steps::run(Step& step) {
  const Command& command = step.command;
  if (!command.freed.empty()) free(command.freed);
  if (const Function& there = registers_.function(command.func); !FunctionParts::are_same(there, step.function))
    take_function(step, there);
  if (step.options->worker0_only && worker_.id() != 0) {
    registers_.set(command.reg, {});
    return false;
  }
  ReplayView& view = worker_.replay_view();
  view.name(view.function, *step.short_name);
  worker_.begin_step(*step.options);
  const bool are_same = step.made.empty() || make_arguments(step, step.options->written_arg);
  if (step.planned.generation != 0 && are_same && run_planned(step)) {
    worker_.end_step(command, {});
    registers_.set(command.reg, {});
    return false;
  }
  Value result = are_same && step.options->is_collective ? call_and_plan(step)
                 : step.callable                         ? (*step.callable)(step.args)
                                                         : step.function(step.args);
  if (worker_.is_fork()) [[unlikely]]
    return true;  // it ends in the worker
  if (!step.made.empty()) drop_arguments(step, false);
  worker_.end_step(command, result);
  const bool stops = step.stops && result.as<bool>();
  registers_.set(command.reg, std::move(result));
  return stops;
}

/// What a collective writes.
const Tensor* Steps::written_by(const Step& step) {
  const auto position = static_cast<size_t>(step.options->written_arg);  // -1: nothing
  return position < step.args.size() ? std::get_if<Tensor>(&step.args[position].data()) : nullptr;
}

/// It is likely to run with the same again.
Value Steps::call_and_plan(Step& step) {
  const Collectives::PlansInto here(worker_.collectives(), step.planned);
  return step.function(step.args);
}

/// The step's function would do the same.
bool Steps::run_planned(Step& step) {
  const Tensor* written = written_by(step);
  return written && written->data() == step.planned.dst.data && !worker_.is_fork() &&
         worker_.collectives().run(step.planned, *written);
}

/// Those of registers that nothing changes meanwhile stay from one iteration to the next.
bool Steps::make_arguments(Step& step, int written_arg) {
  bool are_same = true;
  for (Step::Made& made : step.made) {
    const Value& given = step.command.args[made.position];
    Value& arg = step.args[made.position];
    if (!made.changes) {
      const uint32_t version = registers_.get(made.reg).version;
      const auto* array = std::get_if<Tensor>(&arg.data());
      const bool is_same = version == made.version && !(array && array->poisoned());
      if (made.is_there && is_same) continue;
      if (!is_same) are_same = false, step.planned.generation = 0;
      made.changes = made.is_there && version != made.version;
      made.version = version;
    }
    arg = registers_.argument(made.position, made.has_arrays ? fresh(given) : given, written_arg);
    made.is_there = true;
    made.changes |= arg.kind() == Value::Kind::kList || arg.kind() == Value::Kind::kDict;  // arrays inside may be lost
    are_same &= !made.changes;
  }
  return are_same;
}

void Steps::drop_arguments(Step& step, bool all) {
  for (Step::Made& made : step.made) {
    if (!made.changes && !all) continue;
    step.args[made.position] = Value();
    made.is_there = false;
  }
}

void Steps::free(std::span<const int64_t> ids) {
  for (const int64_t id : ids) registers_.kill(id);
}

/// All values are read before the first register is set.
void Steps::assign() {
  if (ids_.assigned.empty()) return;
  make_arguments(assigned_, -1);
  for (size_t i = 0; i < ids_.assigned.size(); ++i) registers_.set(ids_.assigned[i], assigned_.args[i]);
  drop_arguments(assigned_, true);
}

Value Steps::returned() const {
  List values;
  for (const int64_t id : ids_.returned) {
    const auto& slot = registers_.get(id);
    if (const auto lost = slot.lost ? slot.lost : find_poison(slot.value))
      throw UsageError(fmt::format("result {} was lost when command {} failed", values.size() + 1, lost->seq));
    values.push_back(slot.value);
  }
  if (values.empty()) return {};
  return values.size() == 1 ? values[0] : Value(std::move(values));
}

void Steps::record(Record::State state) {
  const auto* function = std::get_if<Function>(&registers_.get(steps_[at_.step].command.func).value.data());
  begin_ = worker_.recorder().add_step(worker_.seq(), static_cast<uint32_t>(at_.step) + 1,
                                       function ? FunctionParts::short_name(*function) : ShortName(), begin_, state);
}

/// An exception is on its way.
void Steps::note_failure() noexcept try {
  failed_seq_ = worker_.seq();
  const Step* step = at_.step < steps_.size() ? &steps_[at_.step] : nullptr;
  if (step && records_) record(Record::State::kFailed);
  const auto* function = step ? std::get_if<Function>(&registers_.get(step->command.func).value.data()) : nullptr;
  std::string where = step ? fmt::format("step {} of program {}", at_.step + 1, name_) : fmt::format("end of program {}", name_);
  if (step && !step->site.empty()) where += fmt::format(" (recorded at {})", step->site);
  if (times_ > 1) where += fmt::format(", iteration {} of {}", at_.iteration + 1, times_);
  worker_.failed_in(function ? function->name() : "program " + name_, where);
} catch (const std::exception&) {  // no memory: the report says less
}

/// Of the steps that come after a failure, in this iteration and in the next; of all, if none has run.
void Steps::lose_results(RegisterFile& registers, int worker, Origin origin) {
  const bool has_begun = std::exchange(failed_seq_, 0) == worker_.seq();
  const bool is_last = has_begun && at_.iteration + 1 >= times_;
  for (size_t i = is_last ? at_.step : 0; i < steps_.size(); ++i) {
    const Command& command = steps_[i].command;
    if (!is_last)  // a program inside: all of its runs that were to come
      if (const auto* function = std::get_if<Function>(&registers.get(command.func).value.data()))
        if (const auto inner = Replayed::of(*function)) inner->forget_failure();
    free(command.freed);
    registers.lose_results(command, worker, origin);
  }
  for (const int64_t id : ids_.assigned) registers.lose(id, origin);
}

}  // namespace tutti::detail
