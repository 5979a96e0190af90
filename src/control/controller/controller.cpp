#include "control/controller/controller.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "control/wire/host_array.h"
#include "control/wire/tensors_inside.h"
#include "control/worker/worker.h"
#include "core/log.h"
#include "core/process.h"
#include "core/settings.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
/// Free in the rings before a command gets its number: more than one without arguments can take.
constexpr size_t kRoom = size_t{64} * 1024;
constexpr size_t kMuchRoom = size_t{512} * 1024;
constexpr auto kSoon = 1ms;

/// Arguments with the content of objects in their place, in `expanded` if there are any. Contents may be anybody's code, Python's
/// collector among it, which may end this very session: not for within a turn.
Args expand(Args args, List& expanded, const char* what) {
  if (std::ranges::none_of(args, has_content)) return args;
  for (size_t i = 0; i < args.size(); ++i) try {
      expanded.push_back(travelling(args[i]));
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: argument {}: {}", what, i + 1, error.what()));
    }
  return expanded;
}

std::atomic<uint64_t> last_id{0};

}  // namespace

Controller::Controller(std::string kind, const StartWorkers& start_workers, Timeout limit, std::function<void()> closed)
    : kind_(std::move(kind)),
      id_(++last_id),
      pid_(getpid()),
      process_generation_(process_generation()),
      closed_(std::move(closed)),
      limit_(limit.value_or(std::chrono::seconds(settings().timeout_s))),
      flusher_([this] { return registers_.any_dropped(); }, [this] { flush(); }) {
  workers_ = start_workers(exchange_);
  layout_ = workers_->layout();
  set_live(true);
}

Controller::~Controller() { close(); }

/// In a fork nothing of a session is here but its memory; and a worker can't wait for itself.
bool Controller::may_close_here() const { return getpid() == pid_ && !Worker::current(); }

std::shared_ptr<Controller> Controller::handle() {
  return {this, [self = shared_from_this()](Controller* controller) {
            if (controller->may_close_here()) return controller->close();
            if (getpid() == controller->pid_)
              log(LogLevel::kError, "the last handle of a session was dropped in a worker function; the session stays as it is");
            new std::shared_ptr(self);  // never destroyed
          }};
}

void Controller::free_register(int64_t id) noexcept try {
  registers_.drop(id);
  flusher_.wake();
} catch (...) {  // no memory: the id is lost, nothing else
}

/// On the flusher's thread; not now, if a call is under way.
void Controller::flush() {
  flushing_.store(true);
  if (std::unique_lock turn(turn_, std::try_to_lock); turn.owns_lock() && !over_ && lost_.empty() && !last_seq_ && has_room())
    try {
      Command command{.action = Action::kKillReg};
      issue(command, Where());
    } catch (const std::exception& error) {
      log(LogLevel::kDebug, "flush of freed registers: {}", error.what());
    }
  flushing_.store(false);
}

bool Controller::has_room() { return workers_->channel().has_room(kRoom); }

/// For much of it, if that comes soon: two that take turns at the edge of a full ring only switch tasks.
void Controller::await_room(Clock::time_point deadline, Where where) {
  const auto enough = Clock::now() + kSoon;
  wait_for(
      Channel::kNone, [&] { return workers_->channel().has_room(kMuchRoom) || (Clock::now() > enough && has_room()); }, deadline,
      "room for a command", where);
}

uint64_t Controller::issue(Command& command, Where where, Clock::time_point deadline) {
  return issue(command, command.args, where, deadline, nullptr);
}

/// `result`: gets a new register, which the command writes.
uint64_t Controller::issue(Command& command, Args args, Where where, Clock::time_point deadline, DRef* result) {
  // before it has a number: a call that runs into its limit here leaves no trace
  if (!has_room()) [[unlikely]]
    await_room(deadline, where);
  command.site = sites_.number(where);
  failures_.acknowledge(command);
  const int64_t reg = registers_.next(command.freed, result != nullptr);
  if (result) command.reg = reg;
  if (result) *result = DRef(std::make_shared<DRefState>(shared_from_this(), command.reg, id_));
  command.seq = seq_.fetch_add(1, std::memory_order_relaxed) + 1;
  frame_.clear();
  encode_frame(frame_, command, args);
  std::optional<Wait> wait;  // for room, in the middle of a long one
  const auto relax = [&] {
    if (!wait) wait.emplace(*this, "room for a long command", where);
    wait->tick();
    drain();
  };
  try {
    workers_->channel().send(frame_.view(), std::cref(relax));  // by reference: a std::function of it would take memory
  } catch (const TransportError& error) {
    lose(error);
  }
  if (constexpr size_t kKept = size_t{1} << 20; frame_.view().size() > kKept) frame_ = {};
  return command.seq;
}

int64_t Controller::register_of(const DRef& ref, const char* what) const {
  if (!ref) throw UsageError(fmt::format("{}: the DRef is empty", what));
  if (ref.state_->session != id_) throw UsageError(fmt::format("{}: the DRef belongs to another session", what));
  return ref.state_->id;
}

void Controller::check_worker(int worker, const char* what) const {
  if (worker < 0 || worker >= layout_.num_workers)
    throw UsageError(fmt::format("{}: worker id {}, expected 0 to {}", what, worker, layout_.num_workers - 1));
}

DRef Controller::get_global_func(std::string_view name, Where where) {
  Turn turn(*this);
  return look_up(name, where);
}

DRef Controller::look_up(std::string_view name, Where where) {
  DRef result;
  Command command{.action = Action::kGetGlobalFunc, .name = std::string(name)};
  issue(command, {}, where, Clock::time_point::max(), &result);
  return result;
}

DRef Controller::call_builtin(const char* name, Args args, Where where, bool is_recorded) {
  List expanded;
  args = expand(args, expanded, name);
  Turn turn(*this);
  check_arguments(args, name);
  const DRef& function = builtin(name, where);
  return is_recorded ? issue_call(function, args, where) : send_call(function, args, where);
}

const DRef& Controller::builtin(const char* name, Where where) {
  DRef& function = builtins_[name];
  if (!function) function = look_up(fmt::format("runtime.disco.{}", name), where);
  return function;
}

DRef Controller::call(const DRef& func, Args args, Where where, const char* what) {
  List expanded;
  args = expand(args, expanded, what);
  Turn turn(*this);
  register_of(func, "call_packed: func");
  check_arguments(args, what);
  return issue_call(func, args, where);
}

void Controller::check_arguments(Args args, const char* what) const {
  for (size_t i = 0; i < args.size(); ++i)
    if (std::string why = why_not_encodable(args[i], id_, kMaxTensorArgument); !why.empty())
      throw UsageError(fmt::format("{}: argument {}: {}", what, i + 1, why));
}

DRef Controller::issue_call(const DRef& func, Args args, Where where) {
  if (const auto capture = capture_.lock()) return capture->call(func, args, where);
  return send_call(func, args, where);
}

DRef Controller::send_call(const DRef& func, Args args, Where where) {
  DRef result;
  call_.func = func.state_->id;
  issue(call_, args, where, Clock::time_point::max(), &result);
  return result;
}

namespace {

void check_host(const Tensor& host, const char* what) {
  if (!host) throw UsageError(fmt::format("{}: host_array is empty", what));
  if (host.device().type != dl::kCPU) throw UsageError(fmt::format("{}: host_array lies on {}", what, to_string(host.device())));
  if (!host.is_contiguous())
    throw UsageError(
        fmt::format("{}: host_array is a strided view, expected a row-major array "
                    "(C++: Tensor::contiguous(), Python: numpy.ascontiguousarray)",
                    what));
}

}  // namespace

DRef Controller::copy_to_new(const Tensor& host, Where where) {
  Turn turn(*this);
  check_host(host, "copy_to_worker_0");
  if (is_recording()) return issue_call(builtin("copy_new", where), List{lend_to_steps(host, where)}, where);
  Tensor copy = Tensor::like(host);
  copy.copy_from(host);
  return put_on_worker0(copy, where);
}

DRef Controller::lend(const Tensor& host, const char* what, Where where) {
  Turn turn(*this);
  check_host(host, what);
  if (is_recording()) return issue_call(builtin("copy_new", where), List{lend_to_steps(host, where)}, where);
  return put_on_worker0(host, where);
}

DRef Controller::put_on_worker0(const Tensor& array, Where where) {
  DRef result;
  Command command{.action = Action::kCopyToWorker0, .is_new = true, .token = exchange_.put(array)};
  issue(command, {}, where, Clock::time_point::max(), &result);
  return result;
}

void Controller::copy(Action action, const Tensor& host, const DRef& remote, Where where) {
  Turn turn(*this);
  check_host(host, to_string(action));
  if (is_recording()) {
    register_of(remote, to_string(action));
    const DRef lent = lend_to_steps(host, where);
    const bool to_worker = action == Action::kCopyToWorker0;
    issue_call(builtin(to_worker ? "copy_to_worker0" : "copy_from_worker0", where), List{lent, remote}, where);
    return;
  }
  Command command{.action = action, .reg = register_of(remote, to_string(action))};
  command.token = exchange_.put(action == Action::kCopyToWorker0 ? pack_host_array(host) : Value(host));
  issue(command, where);
}

Value Controller::debug_get(const DRef& ref, int worker, Timeout timeout, Where where) {
  Turn turn(*this);
  refuse_to_record("debug_get_from_remote");
  check_worker(worker, "debug_get_from_remote");
  Command command{.action = Action::kDebugGetFromRemote, .reg = register_of(ref, "debug_get_from_remote"), .worker = worker};
  const auto deadline = deadline_of(timeout);
  awaited_ = issue(command, where, deadline);
  bool is_done = false;
  try {
    wait_for(
        awaited_,
        [&] {
          if (answer_) return true;
          return std::exchange(is_done, workers_->channel().finished() >= awaited_);  // and one more look for the answer
        },
        deadline, fmt::format("debug_get_from_remote({})", worker), where);
  } catch (...) {
    awaited_ = 0;  // a late answer is nobody's
    throw;
  }
  awaited_ = 0;
  if (!answer_) {
    raise_failures(true, deadline, where);
    throw TransportError("debug_get_from_remote: the worker has not answered");
  }
  Reply answer = *std::exchange(answer_, std::nullopt);
  if (answer.kind == Reply::Kind::kToken) answer.value = exchange_.take(answer.token);
  raise_failures(false, deadline, where);
  if (answer.kind == Reply::Kind::kError) throw UsageError(fmt::format("debug_get_from_remote: {}", answer.failure.message));
  if (answer.kind == Reply::Kind::kPoisoned) {
    if (const auto* failure = failures_.raised(answer.origin)) throw RemoteError({*failure});
    WorkerFailure failure{
        .worker = answer.origin.worker,
        .seq = answer.origin.seq,
        .host = {},
        .pid = 0,
        .kind = "lost value",
        .message = fmt::format("the value was lost when command {} failed on worker {}", answer.origin.seq, answer.origin.worker),
        .function = "debug_get_from_remote",
        .issued_at = {},
        .traceback = {}};
    throw RemoteError({failure});
  }
  return std::move(answer.value);
}

void Controller::debug_set(const DRef& ref, int worker, const Value& given, Timeout timeout, Where where) {
  List expanded;
  const Value& value = expand(Args(&given, 1), expanded, "debug_copy_from")[0];
  Turn turn(*this);
  refuse_to_record("debug_copy_from");
  check_worker(worker, "debug_copy_from");
  Command command{.action = Action::kDebugSetRegister, .reg = register_of(ref, "debug_copy_from"), .worker = worker};
  const bool in_process = worker == 0 && value.kind() != Value::Kind::kRegister;
  if (std::string why = why_not_encodable(value, 0, INT64_MAX); !in_process && !why.empty())
    throw UsageError("debug_copy_from: " + why);
  std::vector<Tensor> large;
  const Value rest = set_apart(value, large);
  for (const Tensor& tensor : large) command.offers.push_back({.dtype = tensor.dtype(), .shape = tensor.shape(), .place = {}});
  if (in_process) command.token = exchange_.put(rest);
  else command.args = {rest};
  const auto deadline = deadline_of(timeout);
  uint64_t seq = 0;
  try {
    seq = issue(command, where, deadline);
  } catch (const TimeoutError&) {
    exchange_.take(command.token);
    throw;
  }
  if (!large.empty()) giving_.emplace(seq, Giving{worker, std::move(large)});
  try {
    sync_locked(worker, deadline, where);
  } catch (...) {
    keep_for_later(seq);
    throw;
  }
}

/// The caller's arrays may change from now on.
void Controller::keep_for_later(uint64_t seq) {
  const auto asked = giving_.find(seq);
  if (asked == giving_.end()) return;
  if (!lost_.empty()) {
    giving_.erase(asked);
    return;
  }
  for (Tensor& tensor : asked->second.tensors) {
    Tensor copy = Tensor::like(tensor);
    copy.copy_from(tensor);
    tensor = copy;
  }
}

}  // namespace tutti::detail
