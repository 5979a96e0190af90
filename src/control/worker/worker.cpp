#include "control/worker/worker.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>

#include "control/wire/tensors_inside.h"
#include "core/demangle.h"
#include "core/env.h"
#include "core/exit_codes.h"
#include "core/log.h"
#include "core/traceback.h"
#include "core/type_name.h"
#include "device/devices.h"
#include "topology/bind.h"
#include "tutti/function.h"

namespace tutti::detail {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local Worker* current_worker = nullptr;  // looked at by every call
std::atomic<uint64_t> last_serial{0};

NodePlane node_plane(Segment& segment, WaitPolicy policy, PeerMemory& peers) {
  return {.has = [&segment](int worker) { return segment.has(worker); },
          .staging = [&segment](int worker) { return segment.staging(worker); },
          .step = [&segment](int worker) -> std::atomic<uint64_t>& { return segment.board().member(worker).step; },
          .staging_bytes = Segment::kStagingBytes,
          .one_process = segment.fd() < 0,
          .peers = &peers,
          .bell = &segment.board().bell(),
          .policy = policy,
          .check_alive = [&segment] { segment.check_not_abandoned(); }};
}

}  // namespace

Worker* Worker::current() { return current_worker; }

Worker::Worker(Segment& segment, int id, Exchange* exchange, void* mpi_parent)
    : segment_(segment),
      id_(id),
      serial_(++last_serial),
      exchange_(exchange),
      mpi_(mpi_parent),
      policy_(segment.wait_policy()),
      collective_policy_(collective_wait_policy(segment.layout().machine_ranks, segment.layout().machine_cores)),
      peers_([&segment](int worker) { return static_cast<pid_t>(segment.slot(worker).pid.load()); }),
      node_(node_plane(segment, collective_policy_, peers_)),
      slot_(segment.slot(id)),
      shown_(segment.board().member(id)),
      inbox_(segment, id),
      outbox_(segment, id),
      streams_({.relax = [this] { return look_at_device(); },
                .is_settled = [this] { return collectives_.device_is_lost() || agreement_.announcements().are_settled(); },
                .here =
                    [this] {
                      return Tensor::Poison{id_, command_.seq};
                    }}),
      failures_(segment.board().failures(id)),
      recorder_(segment.recorder(id)),
      faults_(id),
      plane_(segment, recorder_, faults_),
      agreement_(segment.board(), id, collective_policy_, plane_),
      collectives_({.worker = id,
                    .node = &node_,
                    .node_of = &segment.layout().node_of,
                    .mpi_parent = mpi_parent,
                    .check_device = [this](bool waits) { check_device(waits); }},
                   agreement_) {
  segment_.set_pid(id);
}

Worker::~Worker() {
  if (segment_.abandoned()) collectives_.abort();
  use_streams(&streams_);  // tensors go in the order of their streams
  registers_.clear();
  use_streams(nullptr);
}

void Worker::serve() try {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // naps are short
  for (runs_here();;) {
    const bool at_once = !segment_.abandoned() && fetch();
    if (!at_once) inbox_.await(), runs_here();  // Python may have been started since
    if (segment_.abandoned() || !run_fetched(at_once)) return;
  }
} catch (const std::exception& error) {
  give_up(segment_, id_, error);
}

void Worker::runs_here() {
  if (cpus_.empty()) cpus_ = topology::granted().cpus;
  thread_local const int64_t thread = gettid();
  slot_.thread.store(thread, std::memory_order_relaxed);
  slot_.stack_signal.store(stack_signal(), std::memory_order_relaxed);
}

/// The worker itself is broken (no memory for a command, a damaged ring): nobody can go on without it.
void Worker::give_up(Segment& segment, int id, const std::exception& error) {
  char why[400];  // there may be no other memory left
  const auto end =
      fmt::format_to_n(why, sizeof why, "worker {} (pid {} on {}) gave up: {}", id, getpid(), host_name(), error.what()).out;
  segment.abandon({why, end});
}

bool Worker::run_fetched(bool at_once) {
  inbox_.take();
  slot_.current_seq.store(command_.seq, std::memory_order_relaxed);  // reports and naps go by it, nothing else
  recorder_.begin_command(command_.seq, command_.action, at_once);
  const bool goes_on = execute();
  if (goes_on) faults_.at(Fault::Where::kChannel, command_.seq);
  recorder_.end_command(state_);
  failures_.publish(command_.seq);
  // release: its replies, its failure and its writes are seen by all who see the number
  shown_.finished_seq.store(command_.seq, std::memory_order_release);
  if (command_.seq >= segment_.header().awaited.load(std::memory_order_relaxed)) segment_.header().controller.ring_ordered();
  segment_.board().bell().ring_ordered();
  if (!goes_on) slot_.has_left.store(1);
  return goes_on;
}

/// Short, and no business of a thread of its own: no collective, no object whose destructor may be anything.
bool Worker::may_run_anywhere() {
  if (faults_.any() || device().type != dl::kCPU || streams_.is_busy()) return false;  // a device is its thread's business
  for (int64_t id : command_.freed) {
    const Value& value = registers_.get(id).value;
    const auto* tensor = std::get_if<Tensor>(&value.data());
    const bool may_be_anything = value.kind() >= Value::Kind::kTensor && value.kind() != Value::Kind::kRegister;
    if (may_be_anything && (!tensor || tensor->is_foreign())) return false;
  }
  switch (command_.action) {
    case Action::kShutDown:
    case Action::kDebugSetRegister: return false;
    case Action::kCallPacked: {
      const auto* function = std::get_if<Function>(&registers_.get(command_.func).value.data());
      return function && function->options().quick;
    }
    default: return true;
  }
}

bool Worker::execute() {
  const struct Current {  // also while destructors of freed objects run
    explicit Current(Worker* worker) { current_worker = worker, use_streams(&worker->streams_); }
    ~Current() { current_worker = nullptr, use_streams(nullptr); }
  } current(this);
  state_ = Record::State::kDone;
  runs_quick_ = false;
  failures_.acknowledge(command_.acknowledged);
  for (int64_t id : command_.freed) registers_.kill(id);
  agreement_.begin_command(command_.seq);
  if (command_.action == Action::kShutDown) {
    registers_.clear();
    collectives_.end_session();
    return false;
  }
  try {
    const bool skippable = command_.action == Action::kCallPacked || command_.action == Action::kCopyFromWorker0 ||
                           command_.action == Action::kCopyToWorker0 || command_.action == Action::kDebugSetRegister;
    enter_device();
    if (!inbox_.malformed().empty()) throw WireError(inbox_.malformed());
    faults_.at(Fault::Where::kCommand, command_.seq, skippable);
    if (skippable && failures_.skipping() && !is_never_skipped()) state_ = Record::State::kSkipped, skip(command_);
    else run(command_), collectives_.finish_parts();
  } catch (const DeviceLost&) {
    throw;  // serve() gives up
  } catch (const ConsequenceError& error) {
    forget_traceback();
    leave_collectives(error.origin);
    record_failure(&error, error.origin, demangled(typeid(error).name()));
  } catch (const ModuleError& error) {
    forget_traceback();  // the module's own is better
    leave_collectives({id_, command_.seq});
    record_failure(&error, std::nullopt, error.kind(), error.traceback());
  } catch (const std::exception& error) {
    leave_collectives({id_, command_.seq});
    record_failure(&error, std::nullopt, demangled(typeid(error).name()), take_traceback());
  } catch (const ThreadEnds&) {  // nobody can stop that
    give_up(
        segment_, id_,
        SystemError(fmt::format("{} has ended the worker's thread (pthread_exit, pthread_cancel); a function returns or throws",
                                function_name())));
    throw;
  } catch (...) {
    leave_collectives({id_, command_.seq});
    record_failure(nullptr, std::nullopt, "unknown exception", take_traceback());
  }
  // after the report of what it found
  if (command_.action == Action::kSyncWorker && command_.worker == id_)
    outbox_.put({.kind = Reply::Kind::kAck, .worker = id_, .seq = command_.seq});
  collectives_.end_command();
  return true;
}

void Worker::run(Command& command) {
  if (command.action == Action::kCallPacked) {
    Value result = call(command);
    if (streams_.is_busy()) note_written(command, result);
    return registers_.set(command.reg, std::move(result));
  }
  switch (command.action) {
    case Action::kShutDown:
    case Action::kKillReg:
    case Action::kCallPacked: return;
    case Action::kGetGlobalFunc: return registers_.set(command.reg, get_global_func(command.name));
    case Action::kSyncWorker:
      if (command.worker == id_ || command.worker == kAllWorkers) await_device();
      return;
    case Action::kCopyFromWorker0:
    case Action::kCopyToWorker0: return copy_on_worker0(command);
    case Action::kDebugGetFromRemote:
      if (command.worker == id_) debug_get(command);
      return;
    case Action::kDebugSetRegister:
      if (command.worker == id_) debug_set(command);
      return;
  }
}

bool Worker::is_never_skipped() {
  if (command_.action != Action::kCallPacked) return false;
  const auto* function = std::get_if<Function>(&registers_.get(command_.func).value.data());
  return function && function->options().never_skipped;
}

/// Results are poisoned with the failure's origin; so is what a collective would have written.
void Worker::skip(Command& command) {
  const Origin origin = failures_.first();
  switch (command.action) {
    case Action::kCallPacked:
    case Action::kCopyToWorker0:
    case Action::kDebugSetRegister: registers_.lose_results(command, id_, origin); break;
    default: break;
  }
  drop_token();
}

/// Of a value that lies in the controller's process for this worker.
void Worker::drop_token() {
  const int receiver = command_.action == Action::kDebugSetRegister ? command_.worker : 0;
  if (exchange_ && command_.token && receiver == id_) exchange_->take(command_.token);
}

namespace {

/// A function may fork. A child that comes back from it would be a second worker in the place of the first.
struct ChildrenEnd {
  const Worker& worker;
  const Function& function;
  ~ChildrenEnd() {
    if (!worker.is_fork()) [[likely]]
      return;
    log(LogLevel::kError,
        "worker {}: a fork of its process came back from {} and ends here; a child ends by itself, by _exit() or exec()",
        worker.id(), function.name());
    ::_exit(kExitUncaught);
  }
};

}  // namespace

void Worker::note_written(const Command& command, const Value& result) {
  each_tensor(result, [&](const Tensor& tensor) { streams_.wrote(tensor); });
  each_tensor(registers_.written(command, id_), [&](const Tensor& tensor) { streams_.wrote(tensor); });
}

/// The command keeps its references, for what must be told when it fails.
Value Worker::call(const Command& command) {
  const int written_arg = registers_.function(command.func).options().written_arg;
  const struct Cleared {  // also when the function throws
    List& list;
    ~Cleared() { list.clear(); }
  } cleared{args_};
  const auto refers = [](const Value& arg) {
    return arg.kind() == Value::Kind::kRegister || arg.kind() == Value::Kind::kList || arg.kind() == Value::Kind::kDict;
  };
  const bool any_refers = std::ranges::any_of(command.args, refers);
  if (any_refers)
    for (size_t i = 0; i < command.args.size(); ++i)
      args_.push_back(refers(command.args[i]) ? registers_.argument(i, command.args[i], written_arg) : command.args[i]);
  const Args args = any_refers ? args_ : command.args;
  const Function& function = registers_.function(command.func);  // registers may have moved
  recorder_.name_function(FunctionParts::short_name(function));
  runs_quick_ = function.options().quick;
  const ChildrenEnd forks{*this, function};
  return traced([&] { return function(args); });
}

std::string Worker::function_name() const {
  if (command_.action == Action::kGetGlobalFunc) return "get_global_func";
  if (command_.action == Action::kCallPacked)
    if (auto* f = std::get_if<Function>(&const_cast<RegisterFile&>(registers_).get(command_.func).value.data())) return f->name();
  return to_string(command_.action);
}

/// The innermost program comes first.
void Worker::failed_in(const std::string& function, const std::string& where) noexcept try {
  if (failed_in_.seq != command_.seq) failed_in_ = {command_.seq, function, where};
  else failed_in_.where = where + ": " + failed_in_.where;
} catch (const std::exception&) {  // no memory: the report says less
}

/// At once: to read a traceback may take seconds, and the others need not wait for it.
void Worker::leave_collectives(Origin origin) {
  failures_.add(origin);
  failures_.publish(command_.seq);
  shown_.failed_seq.store(command_.seq, std::memory_order_release);  // after the interval that says why
  segment_.board().bell().ring();
  segment_.header().controller.ring();  // a leader tells the other nodes
}

void Worker::record_failure(const std::exception* error, std::optional<Origin> origin, const std::string& kind,
                            const std::string& traceback) {
  const Origin here{id_, command_.seq};
  state_ = origin ? Record::State::kConsequence : Record::State::kFailed;
  registers_.lose_results(command_, id_, origin.value_or(here));
  Reply report{.kind = origin ? Reply::Kind::kConsequence : Reply::Kind::kError,
               .worker = id_,
               .seq = command_.seq,
               .origin = origin.value_or(here),
               .site = command_.site};
  if (collectives_.device_since() > 0) report.loss = {collectives_.device_since(), report.origin};
  report.failure = {.host = host_name(),
                    .pid = getpid(),
                    .kind = kind,
                    .message = error ? what_of(*error) : "an exception that is not a std::exception",
                    .function = function_name(),
                    .traceback = traceback};
  if (const InProgram in = std::exchange(failed_in_, {}); in.seq == command_.seq) {
    report.failure.function = in.function;
    report.failure.message = in.where + ": " + report.failure.message;
  }
  const std::string& ran = report.failure.function;
  if (ran.starts_with("runtime.disco.") && !ran.ends_with("import_python_module"))
    report.failure.traceback.clear();  // of our own insides
  log(LogLevel::kDebug, "worker {} failed at command {}: {}", id_, command_.seq, report.failure.message);
  outbox_.put(report);
}

}  // namespace tutti::detail
