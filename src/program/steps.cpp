#include "program/steps.h"

#include <fmt/format.h>

#include <exception>
#include <set>

#include "control/wire/tensors_inside.h"
#include "control/worker/functions_above.h"
#include "core/items.h"
#include "tutti/function.h"

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

}  // namespace

/// Whether there are any. Registers that exist stay where they are while the steps run.
bool Steps::note_registers(const Value& arg) {
  bool any = false;
  each_item(arg, [&](const Value& item) { any |= note_registers(item); });
  const auto* ref = std::get_if<RegisterRef>(&arg.data());
  if (ref) registers_.get(ref->id);
  return any || ref;
}

Steps::Steps(Worker& worker, std::string name, std::vector<Step> steps, Registers ids)
    : worker_(worker), registers_(worker.registers()), ids_(std::move(ids)), name_(std::move(name)), steps_(std::move(steps)) {
  std::set<int64_t> written(ids_.freed.begin(), ids_.freed.end());
  for (const Step& step : steps_) {
    written.insert(step.command.reg);
    written.insert(step.command.freed.begin(), step.command.freed.end());
  }
  for (Step& step : steps_) {
    const Command& command = step.command;
    for (size_t i = 0; i < command.args.size(); ++i) {
      const Value& arg = command.args[i];
      step.args.push_back(arg);
      Step::Made made{i, has_arrays(arg)};
      if (const auto* ref = std::get_if<RegisterRef>(&arg.data())) {
        made.reg = ref->id;
        made.changes = written.contains(ref->id);
      }
      if (note_registers(arg) || made.has_arrays) step.made.push_back(made);
    }
    registers_.get(command.reg);
    registers_.get(command.func);
    for (const int64_t id : command.freed) registers_.get(id);
  }
  for (const Shape* ids : {&ids_.slots, &ids_.returned, &ids_.freed})
    for (const int64_t id : *ids) registers_.get(id);
}

/// From the first step to the last, or to an error. A program inside of another one has its place in the view meanwhile.
class Steps::Run {
 public:
  explicit Run(Steps& steps) : steps_(steps), view_(steps.worker_.replay_view()) {
    if (steps.is_running_) throw UsageError(fmt::format("{} can't replay itself", steps.name_));
    if (Worker::current() != &steps.worker_)
      throw UsageError(fmt::format("{} belongs to worker {} and its thread", steps.name_, steps.worker_.id()));
    steps.is_running_ = true;
    steps.at_ = {};
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
  const Shape& slots = ids_.slots;
  if (args.size() != slots.size() + 1)
    throw UsageError(fmt::format("{}: {} values for {} slots, after the number of iterations", name_,
                                 args.empty() ? 0 : args.size() - 1, slots.size()));
  const auto times = args[0].as<int64_t>();
  const Run here(*this);
  times_ = times == kCall ? 1 : times;
  for (size_t i = 0; i < slots.size(); ++i) registers_.set(slots[i], args[i + 1]);
  ReplayView& view = worker_.replay_view();
  bool stops = false;
  const bool may_record = worker_.records_steps();  // an outer program's iteration may not
  int64_t next_record = 0;                          // iteration
  for (; at_.iteration < times_ && !stops; ++at_.iteration) {
    worker_.check_alive();
    view.iteration.store(static_cast<uint64_t>(at_.iteration) + 1, std::memory_order_relaxed);
    records_ = may_record && at_.iteration >= next_record;
    worker_.record_steps(records_);
    const uint64_t begin = records_ ? begin_ = ticks() : 0;
    for (at_.step = 0; at_.step < steps_.size() && !stops; ++at_.step) {
      view.step.store(static_cast<uint32_t>(at_.step) + 1, std::memory_order_relaxed);
      stops = run(steps_[at_.step]);
      if (records_) record();
      if (worker_.is_fork()) return {};  // it ends in the worker
    }
    free(ids_.freed);
    // short iterations now and then, so that the recorder and the clock cost nothing
    if (records_) next_record = at_.iteration + 1 + static_cast<int64_t>(kBetweenRecords / (begin_ - begin + 1));
  }
  return times == kCall ? returned() : Value(at_.iteration);
}

bool Steps::run(Step& step) {
  const Command& command = step.command;
  free(command.freed);
  const Function& function = registers_.function(command.func);
  ReplayView& view = worker_.replay_view();
  view.name(view.function, FunctionParts::short_name(function));
  worker_.begin_step(function);
  make_arguments(step, function.options().written_arg);
  Value result = function(step.args);
  drop_arguments(step, false);
  worker_.end_step(command, result);
  const bool stops = step.stops && result.as<bool>();
  registers_.set(command.reg, std::move(result));
  return stops;
}

/// Those of registers that nothing changes meanwhile stay from one iteration to the next.
void Steps::make_arguments(Step& step, int written_arg) {
  for (Step::Made& made : step.made) {
    const Value& given = step.command.args[made.position];
    Value& arg = step.args[made.position];
    if (!made.changes) {
      const uint32_t version = registers_.get(made.reg).version;
      const auto* array = std::get_if<Tensor>(&arg.data());
      if (made.is_there && version == made.version && !(array && array->poisoned())) continue;
      made.changes = made.is_there && version != made.version;
      made.version = version;
    }
    arg = registers_.argument(made.position, made.has_arrays ? fresh(given) : given, written_arg);
    made.is_there = true;
    made.changes |= arg.kind() == Value::Kind::kList || arg.kind() == Value::Kind::kDict;  // arrays inside may be lost
  }
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

Value Steps::returned() const {
  if (ids_.returned.empty()) return {};
  if (ids_.returned.size() == 1) return registers_.get(ids_.returned[0]).value;
  List values;
  for (const int64_t id : ids_.returned) values.push_back(registers_.get(id).value);
  return values;
}

void Steps::record() {
  const auto* function = std::get_if<Function>(&registers_.get(steps_[at_.step].command.func).value.data());
  begin_ = worker_.recorder().add_step(worker_.seq(), static_cast<uint32_t>(at_.step) + 1,
                                       function ? FunctionParts::short_name(*function) : ShortName(), begin_);
}

/// An exception is on its way.
void Steps::note_failure() noexcept try {
  failed_seq_ = worker_.seq();
  if (at_.step >= steps_.size()) return;
  Step& step = steps_[at_.step];
  const auto* function = std::get_if<Function>(&registers_.get(step.command.func).value.data());
  std::string where = fmt::format("step {} of {}", at_.step + 1, name_);
  if (!step.site.empty()) where += fmt::format(" (recorded at {})", step.site);
  if (times_ > 1) where += fmt::format(", iteration {} of {}", at_.iteration + 1, times_);
  worker_.failed_in(function ? function->name() : name_, where);
} catch (const std::exception&) {  // no memory: the report says less
}

/// Of the steps that come after a failure, in this iteration and in the next; of all, if none has run.
void Steps::lose_results(RegisterFile& registers, int worker, Origin origin) {
  const bool has_begun = std::exchange(failed_seq_, 0) == worker_.seq();
  for (size_t i = has_begun && at_.iteration + 1 >= times_ ? at_.step : 0; i < steps_.size(); ++i) {
    const Command& command = steps_[i].command;
    free(command.freed);
    registers.lose_results(command, worker, origin);
  }
}

namespace {

Function program(const std::string& name, const List& recorded, const Shape& slots, const Shape& returned, const Shape& freed) {
  std::vector<Steps::Step> steps;
  for (const Value& each : recorded) {
    const auto parts = each.as<List>();
    if (parts.size() != 3) throw WireError("a step of a program has 3 parts");
    Steps::Step step{
        .command = decode_command(parts[0].as<Bytes>()), .site = parts[1].as<std::string>(), .stops = parts[2].as<bool>()};
    if (step.command.action != Action::kCallPacked) throw WireError("a step of a program is a call");
    steps.push_back(std::move(step));
  }
  return Replayed::function(
      name, std::make_shared<Steps>(*Worker::current(), name, std::move(steps), Steps::Registers{slots, returned, freed}));
}

bool stop_when(bool flag) {
  const Tensor all = Tensor::full<uint8_t>({1}, flag ? 1 : 0);
  worker::world().allreduce(all, all, ReduceOp::kMin);
  return all.item<uint8_t>() != 0;
}

/// An array of the controller, on worker 0: alone in a list, so that it stays in the host's memory.
Value lend(int64_t token) {
  if (worker::id() != 0) return {};
  return List{Worker::current()->take(static_cast<uint64_t>(token))};
}

Tensor lent(const Value& list) { return list.as<List>().at(0).as<Tensor>(); }

Value copy_new(const Value& from) {
  if (worker::id() != 0) return {};
  const Tensor host = lent(from);
  Tensor made = Tensor::empty(host.shape(), host.dtype(), worker::device());
  made.copy_from(host);
  return made;
}

void copy_on_worker0(const Value& to, const Value& from) {
  if (worker::id() != 0) return;
  const auto tensor = [](const Value& value) { return value.kind() == Value::Kind::kList ? lent(value) : value.as<Tensor>(); };
  const Tensor destination = tensor(to);
  destination.copy_from(tensor(from));
  destination.clear_poison();
}

}  // namespace

void register_program_functions() {
  const auto add = [](const char* name, auto function, const Function::Options& options = {}) {
    register_global_func(fmt::format("runtime.disco.{}", name), function, {.override_existing = true, .function = options});
  };
  add("program", program, {.never_skipped = true});
  add("stop_when", stop_when);
  add("same", [](const Value& value) { return value; });
  add("program_item", [](const List& values, int64_t i) { return values.at(static_cast<size_t>(i)); });
  add("lend", lend, {.never_skipped = true});
  add("copy_new", copy_new);
  add("copy_on_worker0", copy_on_worker0, {.written_arg = 0});
}

}  // namespace tutti::detail
