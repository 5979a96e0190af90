#include "control/worker.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "control/exit_codes.h"
#include "control/host_array.h"
#include "control/tensors_inside.h"
#include "core/env.h"
#include "core/log.h"
#include "core/traceback.h"
#include "core/type_name.h"
#include "device/devices.h"
#include "tutti/function.h"

namespace tutti {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local Worker* current_worker = nullptr;  // looked at by every call
std::atomic<uint64_t> last_serial{0};

constexpr uint64_t kShort = 2000;  // ticks, somewhat less than a microsecond
constexpr uint64_t kLong = 100'000;
constexpr uint32_t kDense = 16, kFlood = 500;  // calls that nobody waited for, without a long wait between them
constexpr auto kFloodNap = std::chrono::microseconds(200);
constexpr int kNaps = 4;

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
      commands_(segment.commands(id)),
      streams_({.relax =
                    [this] {
                      segment_.check_not_abandoned();
                      return collectives_.poll_error();
                    },
                .here =
                    [this] {
                      return Tensor::Poison{id_, command_.seq};
                    }}),
      failures_(segment.board().failures(id)),
      recorder_(segment.recorder(id)),
      faults_(id),
      plane_(segment, recorder_, faults_),
      agreement_(segment.board(), id, collective_policy_, plane_),
      collectives_({.worker = id, .node = &node_, .node_of = &segment.layout().node_of, .mpi_parent = mpi_parent}, agreement_) {
  segment_.set_pid(id);
}

Worker::~Worker() {
  if (segment_.abandoned()) collectives_.abort();
  use_streams(&streams_);  // tensors go in the order of their streams
  registers_.clear();
  use_streams(nullptr);
}

Collectives::Members Worker::world() const {
  Collectives::Members members{
      .key = world_key(), .workers = std::vector<int>(static_cast<size_t>(layout().num_workers)), .rank = id_};
  std::iota(members.workers.begin(), members.workers.end(), 0);
  return members;
}

Collectives::Members Worker::group() const {
  const int size = layout().group_size();
  Collectives::Members members{
      .key = group_key(group_id()), .workers = std::vector<int>(static_cast<size_t>(size)), .rank = id_ % size};
  std::iota(members.workers.begin(), members.workers.end(), group_id() * size);
  return members;
}

Collectives::Members Worker::named(const std::vector<int>& workers) {
  std::vector<bool> seen(static_cast<size_t>(layout().num_workers));
  int rank = -1;
  for (size_t r = 0; r < workers.size(); ++r) {
    const int worker = workers[r];
    if (worker < 0 || worker >= layout().num_workers)
      throw UsageError(fmt::format("worker::comm: worker {}, expected 0 to {}", worker, layout().num_workers - 1));
    if (seen[static_cast<size_t>(worker)]) throw UsageError(fmt::format("worker::comm: worker {} is listed twice", worker));
    seen[static_cast<size_t>(worker)] = true;
    if (worker == id_) rank = static_cast<int>(r);
  }
  if (rank < 0) throw UsageError(fmt::format("worker::comm: worker {} is not among the {} that are listed", id_, workers.size()));
  return collectives_.named(CommKind::kNamed, {.workers = workers, .rank = rank});
}

void Worker::init_ccl(std::string_view ccl, const Shape& device_ids) {
  collectives_.init_ccl(ccl, world(), group(), [&] { return device_id(device_ids); });
}

int32_t Worker::device_id(const Shape& device_ids) const {
  const auto& nodes = layout().node_of;
  const auto place = static_cast<size_t>(std::count(nodes.begin(), nodes.begin() + id_, nodes[static_cast<size_t>(id_)]));
  if (!device_ids.empty() && place >= device_ids.size())
    throw UsageError(fmt::format("init_ccl: {} device ids, expected one for each worker of a node: worker {} is its node's {}.",
                                 device_ids.size(), id_, place + 1));
  const int64_t id = device_ids.empty() ? static_cast<int64_t>(place) : device_ids[place];
  if (id < 0 || id > INT32_MAX) throw UsageError(fmt::format("init_ccl: device id {}", id));
  return static_cast<int32_t>(id);
}

void Worker::serve() try {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // naps are short
  for (runs_here();;) {
    const bool at_once = !segment_.abandoned() && fetch();
    if (!at_once) await_command(), runs_here();  // Python may have been started since
    if (segment_.abandoned() || !run_fetched(at_once)) return;
  }
} catch (const std::exception& error) {
  give_up(segment_, id_, error);
}

void Worker::runs_here() {
  thread_local const int64_t thread = gettid();
  slot_.thread.store(thread, std::memory_order_relaxed);
  slot_.stack_signal.store(stack_signal(), std::memory_order_relaxed);
}

/// Until one is fetched or the session is abandoned. In a flood of commands each look takes the controller's cache line away, and
/// staying awake a core that others could use: let some more come.
void Worker::await_command() {
  Doorbell& bell = segment_.header().commands;
  const uint64_t since = ticks();
  if (calls_in_a_row_ > kFlood && policy_.spin < WaitPolicy().spin) {
    auto& nappers = segment_.header().nappers;
    nappers.fetch_add(1, std::memory_order_seq_cst);
    for (int naps = 0; naps < kNaps && !is_due() && !segment_.abandoned(); ++naps) {
      const uint32_t seen = bell.value.load(std::memory_order_acquire);
      if (!is_due()) bell.sleep(seen, kFloodNap);
    }
    nappers.fetch_sub(1, std::memory_order_seq_cst);
    if (segment_.abandoned() || fetch()) return;
  } else if (calls_in_a_row_ > kDense) {
    while (ticks() - since < kShort) pause_cpu();
  }
  while (!wait_until(bell, policy_, Clock::now() + std::chrono::hours(1), [&] { return segment_.abandoned() || fetch(); })) {
  }
  if (ticks() - since > kLong) calls_in_a_row_ = 0;
}

/// The worker itself is broken (no memory for a command, a damaged ring): nobody can go on without it.
void Worker::give_up(Segment& segment, int id, const std::exception& error) {
  char why[400];  // there may be no other memory left
  const auto end =
      fmt::format_to_n(why, sizeof why, "worker {} (pid {} on {}) gave up: {}", id, getpid(), host_name(), error.what()).out;
  segment.abandon({why, end});
}

bool Worker::fetch() { return fetched_ || (fetched_ = read_command()); }

bool Worker::run_fetched(bool at_once) {
  fetched_ = false;
  calls_in_a_row_ = command_.action == Action::kCallPacked ? calls_in_a_row_ + 1 : 0;
  slot_.current_seq.store(command_.seq, std::memory_order_relaxed);
  recorder_.begin_command(command_.seq, command_.action, at_once);
  const bool goes_on = execute();
  if (goes_on) faults_.at(Fault::Where::kChannel, command_.seq);
  recorder_.end_command(state_);
  failures_.publish(command_.seq);
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
    const bool may_be_anything = value.kind() >= Value::Kind::kTensor && value.kind() <= Value::Kind::kOpaque;
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

bool Worker::read_command() {
  Doorbell& controller = segment_.header().controller;
  if (!commands_.readable()) {
    commands_.tell();
    if (std::exchange(unrung_, 0) > 0) controller.ring_ordered();
    return false;
  }
  if (!frames_.is_inside()) {  // mostly it is there in one piece
    const auto bytes = commands_.peek();
    uint64_t length = 0;
    if (bytes.size() >= sizeof length) std::memcpy(&length, bytes.data(), sizeof length);
    if (bytes.size() >= sizeof length && length <= bytes.size() - sizeof length) {
      decode(bytes.subspan(sizeof length, length));
      commands_.consume(sizeof length + length);
      unrung_ += sizeof length + length;
      if (controller.sleepers.load(std::memory_order_relaxed) != 0) commands_.tell();  // it may look by itself
      if (unrung_ > Segment::kRingBytes / 8) {
        unrung_ = 0;
        commands_.tell();
        controller.ring_ordered();
      }
      return true;
    }
  }
  const auto frame = frames_.poll(commands_);
  controller.ring();  // there is space
  if (frame) decode(*frame);
  return frame.has_value();
}

/// A body that can't be read, or has no room here, is this command's failure.
void Worker::decode(std::span<const std::byte> frame) {
  command_.clear();
  malformed_.clear();
  try {
    decode_command(frame, command_);
  } catch (const std::exception& error) {
    if (command_.seq == 0) throw;
    malformed_ = error.what();
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
    if (!malformed_.empty()) throw WireError(malformed_);
    if (device().type != dl::kCPU)  // of the thread on which worker 0 runs now, say
      if (StreamApi* streams = device_api(device()).streams()) streams->set_device(device().id);
    faults_.at(Fault::Where::kCommand, command_.seq, skippable);
    if (skippable && failures_.skipping()) state_ = Record::State::kSkipped, skip(command_);
    else run(command_);
  } catch (const ConsequenceError& error) {
    forget_traceback();
    leave_collectives(error.origin);
    record_failure(&error, error.origin, type_name(typeid(error)));
  } catch (const ModuleError& error) {
    forget_traceback();  // the module's own is better
    leave_collectives({id_, command_.seq});
    record_failure(&error, std::nullopt, error.kind(), error.traceback());
  } catch (const std::exception& error) {
    leave_collectives({id_, command_.seq});
    record_failure(&error, std::nullopt, type_name(typeid(error)), take_traceback());
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
    reply({.kind = Reply::Kind::kAck, .worker = id_, .seq = command_.seq});
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
      if (command.worker == id_ || command.worker == kAllWorkers) streams_.finish();
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

/// Results are poisoned with the failure's origin; so is what a collective would have written.
void Worker::skip(Command& command) {
  const Origin origin = failures_.first();
  switch (command.action) {
    case Action::kCallPacked:
    case Action::kCopyToWorker0:
    case Action::kDebugSetRegister: lose_results(command, origin); break;
    default: break;
  }
  const int receiver = command.action == Action::kDebugSetRegister ? command.worker : 0;
  if (exchange_ && command.token && receiver == id_) exchange_->take(command.token);
}

/// What a function writes into, by its registration; None: nothing.
Value Worker::written(const Command& command) {
  const auto* function = std::get_if<Function>(&registers_.get(command.func).value.data());
  const int position = function ? function->options().written_arg : -1;
  if (position < 0 || static_cast<size_t>(position) >= command.args.size()) return {};
  const auto* ref = std::get_if<RegisterRef>(&command.args[static_cast<size_t>(position)].data());
  return ref ? registers_.get(ref->id).value : Value();
}

/// What a command would have written is not to be read: its register, and the memory of the tensor it writes into.
void Worker::lose_results(const Command& command, Origin origin) {
  switch (command.action) {
    case Action::kGetGlobalFunc: return registers_.lose(command.reg, origin);
    case Action::kCallPacked: {
      poison_all(written(command), origin);
      return registers_.lose(command.reg, origin);
    }
    case Action::kCopyToWorker0:
      if (command.is_new) return registers_.lose(command.reg, origin);
      if (id_ == 0) poison_all(registers_.get(command.reg).value, origin);
      return;
    case Action::kDebugSetRegister:
      if (command.worker != id_) return;
      poison_all(registers_.get(command.reg).value, origin);
      return registers_.lose(command.reg, origin);
    default: return;
  }
}

/// A value with the registers' in the place of references.
Value Worker::resolve(size_t position, const Value& arg, int written_arg) {
  if (const auto* list = std::get_if<List>(&arg.data())) {
    List resolved;
    for (const Value& item : *list) resolved.push_back(resolve(position, item, -1));
    return resolved;
  }
  const auto* ref = std::get_if<RegisterRef>(&arg.data());
  if (!ref) return arg;
  const auto& slot = registers_.get(ref->id);
  std::optional<Origin> lost = slot.lost;
  if (!lost && static_cast<int>(position) != written_arg) lost = find_poison(slot.value);
  if (lost)
    throw UsageError(
        fmt::format("argument {} was lost when command {} failed; make it again or overwrite it", position + 1, lost->seq));
  return slot.value;
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
  each_tensor(written(command), [&](const Tensor& tensor) { streams_.wrote(tensor); });
}

/// The command keeps its references, for what must be told when it fails.
Value Worker::call(const Command& command) {
  const auto& slot = registers_.get(command.func);
  if (slot.lost) throw UsageError(fmt::format("the function was lost when command {} failed; get it again", slot.lost->seq));
  const auto* in_register = std::get_if<Function>(&slot.value.data());
  if (!in_register) throw UsageError(fmt::format("call of {}, expected a function", to_string(slot.value)));
  const int written_arg = in_register->options().written_arg;
  const struct Cleared {  // also when the function throws
    List& list;
    ~Cleared() { list.clear(); }
  } cleared{args_};
  const auto refers = [](const Value& arg) { return arg.kind() == Value::Kind::kRegister || arg.kind() == Value::Kind::kList; };
  const bool any_refers = std::ranges::any_of(command.args, refers);
  if (any_refers)
    for (size_t i = 0; i < command.args.size(); ++i)
      args_.push_back(refers(command.args[i]) ? resolve(i, command.args[i], written_arg) : command.args[i]);
  const Args args = any_refers ? args_ : command.args;
  const auto& function = std::get<Function>(registers_.get(command.func).value.data());  // registers may have moved
  recorder_.name_function(detail::FunctionName::of(function));
  runs_quick_ = function.options().quick;
  const ChildrenEnd forks{*this, function};
  return traced([&] { return function(args); });
}

void Worker::copy_on_worker0(const Command& command) {
  if (id_ != 0) {
    if (command.is_new) registers_.set(command.reg, Value());
    return;
  }
  const Value host = exchange_->take(command.token);
  if (command.is_new) return registers_.set(command.reg, on_device(host.as<Tensor>()));
  const auto& slot = registers_.get(command.reg);
  if (slot.lost) throw UsageError(fmt::format("the array was lost when command {} failed", slot.lost->seq));
  const auto* remote = std::get_if<Tensor>(&slot.value.data());
  if (!remote) throw UsageError(fmt::format("the register holds {}, expected a Tensor", to_string(slot.value)));
  if (command.action == Action::kCopyToWorker0) {
    remote->copy_from(unpack_host_array(host));
    remote->clear_poison();
  } else {
    if (const auto* poison = remote->poisoned())
      throw UsageError(fmt::format("the array was lost when command {} failed", poison->seq));
    host.as<Tensor>().copy_from(*remote);
  }
}

/// The array itself, where the worker's tensors lie in host memory.
Tensor Worker::on_device(const Tensor& host) const {
  if (device().type == dl::kCPU) return host;
  Tensor copy = Tensor::empty(host.shape(), host.dtype(), device());
  copy.copy_from(host);
  return copy;
}

std::string Worker::function_name() const {
  if (command_.action == Action::kGetGlobalFunc) return "get_global_func";
  if (command_.action == Action::kCallPacked)
    if (auto* f = std::get_if<Function>(&const_cast<RegisterFile&>(registers_).get(command_.func).value.data())) return f->name();
  return to_string(command_.action);
}

/// At once: to read a traceback may take seconds, and the others need not wait for it.
void Worker::leave_collectives(Origin origin) {
  failures_.add(origin);
  failures_.publish(command_.seq);
  shown_.failed_seq.store(command_.seq, std::memory_order_release);
  segment_.board().bell().ring();
  segment_.header().controller.ring();  // a leader tells the other nodes
}

void Worker::record_failure(const std::exception* error, std::optional<Origin> origin, const std::string& kind,
                            const std::string& traceback) {
  const Origin here{id_, command_.seq};
  state_ = origin ? Record::State::kConsequence : Record::State::kFailed;
  lose_results(command_, origin.value_or(here));
  Reply report{.kind = origin ? Reply::Kind::kConsequence : Reply::Kind::kError,
               .worker = id_,
               .seq = command_.seq,
               .origin = origin.value_or(here),
               .site = command_.site};
  report.failure = {.host = host_name(),
                    .pid = getpid(),
                    .kind = kind,
                    .message = error ? what_of(*error) : "an exception that is not a std::exception",
                    .function = function_name(),
                    .traceback = traceback};
  const std::string& ran = report.failure.function;
  if (ran.starts_with("runtime.disco.") && !ran.ends_with("import_python_module"))
    report.failure.traceback.clear();  // of our own insides
  log(LogLevel::kDebug, "worker {} failed at command {}: {}", id_, command_.seq, report.failure.message);
  reply(report);
}

void Worker::reply(const Reply& reply) {
  if (answers_) return answers_->push_back(encode(reply));
  Writer frame;
  encode_frame(frame, reply);
  std::span<const std::byte> rest = frame.view();
  RingWriter ring = segment_.replies(id_);
  Doorbell& space = segment_.slot(id_).reply_space;
  while (!rest.empty() && !segment_.abandoned()) {
    const size_t enough = ring.worthwhile(rest.size());
    wait_until(space, policy_, Clock::now() + std::chrono::seconds(1), [&] { return ring.space(enough) >= enough; });
    rest = rest.subspan(ring.write_some(rest));
    segment_.header().controller.ring();
  }
}

}  // namespace tutti
