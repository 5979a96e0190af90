#include "control/controller.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "control/host_array.h"
#include "control/tensors_inside.h"
#include "control/signals.h"
#include "control/worker.h"
#include "core/env.h"
#include "core/log.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kTick = 50ms;       // how often a wait looks whether the workers live
constexpr auto kFlushAfter = 5ms;  // freed ids of an idle controller
constexpr size_t kRemembered = 1024;

std::atomic<uint64_t> last_id{0};

Clock::time_point deadline_of(Timeout timeout) {
  constexpr std::chrono::milliseconds kYear = std::chrono::hours(24 * 365);
  return Clock::now() + std::min(timeout.value_or(kYear), kYear);
}

}  // namespace

/// The right to use the session, for one call. Calls must not overlap in time: that is an error, not a race.
class Controller::Turn {
 public:
  enum class IfTaken { kRefuse, kWait };
  explicit Turn(Controller& controller, IfTaken if_taken = IfTaken::kRefuse) : lock_(controller.turn_, std::defer_lock) {
    if (auto* worker = Worker::current())
      throw UsageError(fmt::format("a worker function can't use a session (worker {}, command {}); return what the controller needs",
                                   worker->id(), worker->seq()));
    if (getpid() != controller.pid_)
      throw UsageError(fmt::format("the session belongs to process {}, this is {}, a fork of it; make a session here", controller.pid_, getpid()));
    if (if_taken == IfTaken::kWait) lock_.lock();
    else lock_.try_lock();
    while (!lock_.owns_lock()) {
      if (!controller.flushing_.load()) {
        if (lock_.try_lock()) break;  // the flusher has just ended
        if (!controller.flushing_.load())
          throw UsageError("two calls on one session overlap in time; issue from one thread at a time, or lock");
      }
      std::this_thread::yield();
      if (lock_.try_lock()) break;
    }
    if (!controller.lost_.empty()) throw TransportError(controller.lost_);
    if (controller.over_) throw UsageError("the session was shut down; make a new one");
    if (preemption_is_asked_for() && controller.preemption_hook_ && if_taken == IfTaken::kRefuse) {
      lock_.unlock();
      controller.preempt();
    }
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

Controller::Controller(std::string kind, const MakeChannel& make_channel, Timeout limit, std::function<void()> closed)
    : kind_(std::move(kind)),
      id_(++last_id),
      pid_(getpid()),
      closed_(std::move(closed)),
      limit_(limit.value_or(std::chrono::seconds(env_int("TUTTI_TIMEOUT", 600, 1, 1000000000)))) {
  flusher_ = std::thread([this] { flush_loop(); });
  try {
    channel_ = make_channel(exchange_);
  } catch (...) {
    stop_flusher();
    throw;
  }
  layout_ = channel_->layout();
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

DRef Controller::new_register() {
  std::lock_guard lock(registers_mutex_);
  int64_t id = 0;
  if (reusable_.empty()) {
    id = next_register_++;
  } else {
    id = reusable_.back();
    reusable_.pop_back();
  }
  return DRef(std::make_shared<DRefState>(shared_from_this(), id, id_));
}

void Controller::free_register(int64_t id) noexcept try {
  {
    std::lock_guard lock(registers_mutex_);
    dropped_.push_back(id);
  }
  if (flusher_sleeps_.load()) {
    std::lock_guard lock(flusher_mutex_);
    flusher_sleeps_.store(false);
    flusher_wakes_.notify_one();
  }
} catch (...) {  // no memory: the id is lost, nothing else
}

/// Freed ids ride in the next command; when none comes, this thread sends one.
void Controller::flush_loop() {
  std::unique_lock lock(flusher_mutex_);
  int quiet = 4;
  while (!flusher_ends_) {
    if (quiet > 3) {
      flusher_sleeps_.store(true);
      bool has_work = false;
      {
        std::lock_guard registers(registers_mutex_);
        has_work = !dropped_.empty();
      }
      if (!has_work) flusher_wakes_.wait(lock, [&] { return flusher_ends_ || !flusher_sleeps_.load(); });
      flusher_sleeps_.store(false);
      quiet = 0;
    }
    flusher_wakes_.wait_for(lock, kFlushAfter, [&] { return flusher_ends_; });
    if (flusher_ends_) return;
    lock.unlock();
    bool has_work = false;
    {
      std::lock_guard registers(registers_mutex_);
      has_work = !dropped_.empty();
    }
    quiet = has_work ? 0 : quiet + 1;
    if (has_work) {
      flushing_.store(true);
      if (std::unique_lock turn(turn_, std::try_to_lock); turn.owns_lock() && !over_ && lost_.empty()) try {
          Command command{.action = Action::kKillReg};
          issue(command, Where());
        } catch (const std::exception& error) {
          log(LogLevel::kDebug, "flush of freed registers: {}", error.what());
        }
      flushing_.store(false);
    }
    lock.lock();
  }
}

uint32_t Controller::site(Where where) {
  auto [it, is_new] = site_ids_.try_emplace({where.file, where.line}, static_cast<uint32_t>(sites_.size()));
  if (is_new) sites_.push_back(where.line ? fmt::format("{}:{}", where.file, where.line) : "");
  return it->second;
}

uint64_t Controller::issue(Command& command, Where where) {
  command.site = site(where);
  command.acknowledged = std::move(acknowledgements_);
  acknowledgements_.clear();
  {
    std::lock_guard lock(registers_mutex_);
    command.freed = std::move(dropped_);
    dropped_.clear();
    // the worker frees before it executes, so these ids can be given out again from now on
    reusable_.insert(reusable_.end(), command.freed.begin(), command.freed.end());
  }
  command.seq = seq_.fetch_add(1) + 1;
  try {
    channel_->send(encode(command), [&] {
      channel_->check_alive();
      drain();
    });
  } catch (const TransportError& error) {
    lost_ = error.what();
    dump_traces("lost");
    throw;
  }
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
  DRef result = new_register();
  Command command{.action = Action::kGetGlobalFunc, .reg = result.state_->id, .name = std::string(name)};
  issue(command, where);
  return result;
}

DRef Controller::call_builtin(const char* name, const List& args, Where where) {
  Turn turn(*this);
  check_arguments(args, name);
  DRef& function = builtins_[name];
  if (!function) function = look_up(fmt::format("runtime.disco.{}", name), where);
  return issue_call(function, args, where);
}

DRef Controller::call(const DRef& func, const List& args, Where where) {
  Turn turn(*this);
  register_of(func, "call_packed: func");
  check_arguments(args, "call_packed");
  return issue_call(func, args, where);
}

void Controller::check_arguments(const List& args, const char* what) const {
  for (size_t i = 0; i < args.size(); ++i)
    if (std::string why = why_not_encodable(args[i], id_, kMaxTensorArgument); !why.empty())
      throw UsageError(fmt::format("{}: argument {}: {}", what, i + 1, why));
}

DRef Controller::issue_call(const DRef& func, const List& args, Where where) {
  const int64_t function = func.state_->id;
  DRef result = new_register();
  Command command{.action = Action::kCallPacked, .reg = result.state_->id, .func = function, .args = args};
  issue(command, where);
  return result;
}

namespace {

void check_host(const Tensor& host, const char* what) {
  if (!host) throw UsageError(fmt::format("{}: host_array is empty", what));
  if (host.device().type != dl::kCPU)
    throw UsageError(fmt::format("{}: host_array lies on {}", what, to_string(host.device())));
  if (!host.is_contiguous()) throw UsageError(fmt::format("{}: host_array is a strided view; use contiguous()", what));
}

}  // namespace

DRef Controller::copy_to_new(const Tensor& host, Where where) {
  Turn turn(*this);
  check_host(host, "copy_to_worker_0");
  Tensor copy = Tensor::like(host);
  copy.copy_from(host);
  DRef result = new_register();
  Command command{.action = Action::kCopyToWorker0, .reg = result.state_->id, .func = 1, .token = exchange_.put(copy)};
  issue(command, where);
  return result;
}

void Controller::copy(Action action, const Tensor& host, const DRef& remote, Where where) {
  Turn turn(*this);
  check_host(host, to_string(action));
  Command command{.action = action, .reg = register_of(remote, to_string(action))};
  command.token = exchange_.put(action == Action::kCopyToWorker0 ? pack_host_array(host) : Value(host));
  issue(command, where);
}

void Controller::drain() {
  while (auto bytes = channel_->try_receive()) {
    Reply reply = decode_reply(*bytes);
    reply.failure.issued_at = reply.site < sites_.size() ? sites_[reply.site] : "";
    const bool is_answer = reply.kind == Reply::Kind::kValue || reply.kind == Reply::Kind::kToken ||
                           reply.kind == Reply::Kind::kPoisoned ||
                           (reply.kind == Reply::Kind::kError && reply.origin.worker < 0);
    if (is_answer) {
      if (reply.seq == awaited_) answer_ = std::move(reply);
      else if (reply.token) exchange_.take(reply.token);  // of a call that timed out
    } else if (reply.kind == Reply::Kind::kAck) {
      acks_[reply.worker] = std::max(acks_[reply.worker], reply.seq);
    } else if (reply.kind == Reply::Kind::kError) {
      failures_.push_back({std::move(reply.failure), reply.origin});
    } else {
      consequences_.push_back(std::move(reply));
    }
  }
}

void Controller::wait_for(const std::function<bool()>& ready, Clock::time_point deadline, const std::string& what, Where where) {
  auto look = [&] {
    drain();
    return ready();
  };
  const auto since = Clock::now();
  auto next_report = since + limit_;
  const auto waited = [&] {
    return fmt::format("{} at {}:{} has waited {:.1f} s, command {} of {} is finished everywhere", what, where.file, where.line,
                       std::chrono::duration<double>(Clock::now() - since).count(), channel_->finished(), seq_.load());
  };
  try {
    while (!channel_->wait(std::min(deadline, Clock::now() + kTick), look)) {
      channel_->check_alive();
      if (Clock::now() >= deadline) {
        timed_out_ = true;
        const TimeoutError error(fmt::format("[controller {}] {}: the limit has passed; calling again waits again\n{}", host_name(), waited(),
                                             report("the limit has passed")));
        dump_traces("time-out");
        throw error;  // NOLINT: a copy
      }
      if (Clock::now() >= next_report) {
        next_report += limit_;
        log_line(LogLevel::kWarn, report(waited()));
      }
    }
    timed_out_ = false;
  } catch (const TransportError& error) {
    lost_ = error.what();
    dump_traces("lost");
    throw;
  }
}

void Controller::await_ack(int worker, Clock::time_point deadline, Where where) {
  Command command{.action = Action::kSyncWorker, .worker = worker};
  const uint64_t seq = issue(command, where);
  wait_for([&] { return acks_[worker] >= seq; }, deadline, fmt::format("sync_worker({})", worker), where);
}

void Controller::sync_locked(int worker, Clock::time_point deadline, Where where) {
  if (worker == kAllWorkers) {
    Command command{.action = Action::kSyncWorker, .worker = kAllWorkers};
    const uint64_t seq = issue(command, where);
    wait_for([&] { return channel_->finished() >= seq; }, deadline, "sync_all", where);
    drain();  // what came before the last finished
    raise_failures(true, deadline, where);
  } else {
    await_ack(worker, deadline, where);
    raise_failures(false, deadline, where);
  }
}

void Controller::sync(int worker, Timeout timeout, Where where) {
  Turn turn(*this);
  if (worker != kAllWorkers) check_worker(worker, "sync_worker");
  sync_locked(worker, deadline_of(timeout), where);
}

void Controller::raise_failures(bool all_is_in, Clock::time_point deadline, Where where) {
  auto reported = [&](Origin origin) {
    return raised_.contains(origin) ||
           std::any_of(failures_.begin(), failures_.end(), [&](const Pending& p) { return p.origin == origin; });
  };
  // a consequence is told by its origin's report, which is under way: the worker has sent it before it left the command
  for (size_t i = 0; i < consequences_.size(); ++i) {
    const Origin origin = consequences_[i].origin;
    if (all_is_in || reported(origin)) continue;
    await_ack(origin.worker, deadline, where);
  }
  for (Reply& reply : std::exchange(consequences_, {}))
    if (!reported(reply.origin)) failures_.push_back({std::move(reply.failure), reply.origin});  // the origin was caught
  if (failures_.empty()) return;
  if (!over_) dump_traces("error");
  std::vector<WorkerFailure> failures;
  for (Pending& pending : std::exchange(failures_, {})) {
    acknowledgements_.push_back(pending.origin);
    raised_.insert_or_assign(pending.origin, pending.failure);
    failures.push_back(std::move(pending.failure));
  }
  while (raised_.size() > kRemembered)
    raised_.erase(std::min_element(raised_.begin(), raised_.end(), [](auto& a, auto& b) { return a.first.seq < b.first.seq; }));
  throw RemoteError(std::move(failures));
}

Value Controller::debug_get(const DRef& ref, int worker, Timeout timeout, Where where) {
  Turn turn(*this);
  check_worker(worker, "debug_get_from_remote");
  Command command{.action = Action::kDebugGetFromRemote, .reg = register_of(ref, "debug_get_from_remote"), .worker = worker};
  awaited_ = issue(command, where);
  const auto deadline = deadline_of(timeout);
  bool is_done = false;
  try {
    wait_for(
        [&] {
          if (answer_) return true;
          return std::exchange(is_done, channel_->finished() >= awaited_);  // and one more look for the answer
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
    if (auto it = raised_.find(answer.origin); it != raised_.end()) throw RemoteError({it->second});
    WorkerFailure failure{.worker = answer.origin.worker,
                          .seq = answer.origin.seq,
                          .host = {},
                          .pid = 0,
                          .kind = "lost value",
                          .message = fmt::format("the value was lost when command {} failed on worker {}", answer.origin.seq,
                                                 answer.origin.worker),
                          .function = "debug_get_from_remote",
                          .issued_at = {},
                          .traceback = {}};
    throw RemoteError({failure});
  }
  return answer.value;
}

void Controller::debug_set(const DRef& ref, int worker, const Value& value, Where where) {
  Turn turn(*this);
  check_worker(worker, "debug_copy_from");
  Command command{.action = Action::kDebugSetRegister, .reg = register_of(ref, "debug_copy_from"), .worker = worker};
  const bool in_process = worker == 0 && value.kind() != Value::Kind::kRegister;
  if (std::string why = why_not_encodable(value, 0, INT64_MAX); !in_process && !why.empty())
    throw UsageError("debug_copy_from: " + why);
  if (in_process) {
    command.token = exchange_.put(copy_tensors(value));
  } else {
    command.args = {value};
  }
  issue(command, where);
  sync_locked(worker, deadline_of({}), where);
}

void Controller::on_preemption(std::function<void()> hook) {
  const Turn turn(*this);
  preemption_hook_ = std::move(hook);
}

void Controller::preempt() {
  std::exchange(preemption_hook_, nullptr)();
  try {
    shutdown({}, Where::current());
  } catch (const RemoteError& error) {
    log(LogLevel::kError, "unreported failure of a session that was preempted: {}", error.what());
  }
  throw Preempted("the job is to make room: the session was shut down after its hook had run");
}

void Controller::shutdown(Timeout timeout, Where where) {
  end(timeout, where, false);
}

void Controller::end(Timeout timeout, Where where, bool waits_for_others) {
  {
    std::lock_guard lock(registers_mutex_);
    if (over_) return;
  }
  std::map<std::string, DRef> builtins;  // dropped after the turn
  Turn turn(*this, waits_for_others ? Turn::IfTaken::kWait : Turn::IfTaken::kRefuse);
  const auto deadline = deadline_of(timeout);
  Command command{.action = Action::kSyncWorker, .worker = kAllWorkers};
  const uint64_t last = issue(command, where);
  wait_for([&] { return channel_->finished() >= last; }, deadline, "shutdown", where);
  dump_traces("shutdown");
  command = {.action = Action::kShutDown};
  const uint64_t seq = issue(command, where);
  wait_for([&] { return channel_->finished() >= seq; }, deadline_of({}), "shutdown", where);
  drain();
  finish();
  builtins.swap(builtins_);
  try {
    raise_failures(true, deadline, where);
  } catch (const RemoteError& error) {
    if (std::uncaught_exceptions() == 0) throw;
    log(LogLevel::kError, "unreported failure at shutdown: {}", error.what());
  }
}

void Controller::finish() {
  {
    std::lock_guard lock(registers_mutex_);
    over_ = true;
  }
  set_live(false);
  channel_->close();
  auto closed = std::exchange(closed_, nullptr);
  if (closed && lost_.empty()) closed();  // a lost session keeps what it holds: tutti::run ends the job
}

void Controller::stop_flusher() {
  if (!flusher_.joinable()) return;
  {
    std::lock_guard lock(flusher_mutex_);
    flusher_ends_ = true;
    flusher_wakes_.notify_one();
  }
  flusher_.join();
}

void Controller::close() noexcept try {
  stop_flusher();
  if (over_) return;
  if (lost_.empty()) try {
    end(timed_out_ ? Timeout(kGrace) : Timeout(), Where::current(), true);  // another thread may still be in a call
  } catch (const RemoteError& error) {
    log(LogLevel::kError, "unreported failure of a session that went out of scope: {}", error.what());
  } catch (const TimeoutError& error) {
    log(LogLevel::kError, "the session can't be ended, a worker is stuck: {}", error.what());
    set_live(false);
    channel_->give_up("a worker is stuck");
    lost_ = "a worker was stuck";
  } catch (const Error& error) {
    log(LogLevel::kError, "end of a session: {}", error.what());
  }
  if (!over_) finish();
  std::map<std::string, DRef> builtins;
  builtins.swap(builtins_);
} catch (...) {
  log_line(LogLevel::kError, "end of a session failed");
}

}  // namespace tutti::detail
