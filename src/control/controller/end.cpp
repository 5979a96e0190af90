// How a session ends.
#include <exception>

#include "control/controller/controller.h"
#include "core/log.h"

namespace tutti::detail {

void Controller::on_preemption(std::function<void()> hook) {
  const Turn turn(*this);
  preemption_hook_ = std::move(hook);
}

void Controller::preempt() {
  const auto capture = std::exchange(capture_, {});  // the hook's calls are its own
  const auto capturing = capturing_.exchange(nullptr);
  try {
    std::exchange(preemption_hook_, nullptr)();
  } catch (...) {
    capture_ = capture, capturing_ = capturing;
    throw;
  }
  try {
    shutdown({}, Where::current());
  } catch (const RemoteError& error) {
    log(LogLevel::kError, "unreported failure of a session that was preempted: {}", error.what());
  }
  throw Preempted("the job is to make room: the session was shut down after its hook had run");
}

void Controller::shutdown(Timeout timeout, Where where) try {
  end(timeout, where, Purpose::kShutdown);
} catch (const Error& error) {
  if (std::uncaught_exceptions() == 0) throw;
  log(LogLevel::kError, "shutdown while another exception is under way: {}", error.what());
}

void Controller::end(Timeout timeout, Where where, Purpose purpose) {
  if (over_) return;
  std::map<std::string, DRef> builtins;  // dropped after the turn
  Turn turn(*this, purpose);
  if (purpose == Purpose::kShutdown) refuse_to_record("shutdown");
  const auto deadline = deadline_of(timeout);
  workers_->resume();
  if (!last_seq_) {
    Command command{.action = Action::kSyncWorker, .worker = kAllWorkers};
    const uint64_t synced = issue(command, where, deadline);
    wait_for(
        synced, [&] { return workers_->channel().finished() >= synced; }, deadline, "shutdown", where);
    dump_traces("shutdown");
    command = {.action = Action::kShutDown};
    last_seq_ = issue(command, where, deadline);
  }
  wait_for(
      last_seq_, [&] { return workers_->channel().finished() >= last_seq_; }, deadline, "shutdown", where);
  drain();
  finish();
  builtins.swap(builtins_);
  raise_failures(true, deadline, where);
}

bool Controller::is_lost() {
  const std::unique_lock turn(turn_, std::try_to_lock);
  return turn.owns_lock() && !lost_.empty();
}

void Controller::finish() {
  {
    std::lock_guard lock(look_mutex_);
    over_ = true;
  }
  set_live(false);
  workers_->close();
  auto closed = std::exchange(closed_, nullptr);
  if (closed && lost_.empty()) closed();  // a lost session keeps what it holds: tutti::run ends the job
}

/// Waits for a call that is still under way in another thread. Whether there is something to shut down.
bool Controller::begin_to_close() {
  std::lock_guard lock(turn_);
  closing_ = true;
  return !over_ && lost_.empty();
}

void Controller::close() noexcept try {
  flusher_.stop();
  std::string stuck;
  if (begin_to_close()) try {
      end(timed_out_ ? Timeout(kGrace) : Timeout(), Where::current(), Purpose::kClose);
    } catch (const RemoteError& error) {
      log(LogLevel::kError, "unreported failure of a session that went out of scope: {}", error.what());
    } catch (const TimeoutError& error) {
      log(LogLevel::kError, "the session can't be ended, a worker is stuck: {}", error.what());
      set_live(false);
      workers_->give_up("a worker is stuck");
      stuck = "a worker was stuck";
    } catch (const Error& error) {
      log(LogLevel::kError, "end of a session: {}", error.what());
    }
  std::map<std::string, DRef> builtins;  // dropped after the turn
  std::lock_guard lock(turn_);
  if (!stuck.empty()) lost_ = stuck;
  if (!over_) finish();
  builtins.swap(builtins_);
} catch (...) {
  log_line(LogLevel::kError, "end of a session failed");
}

}  // namespace tutti::detail
