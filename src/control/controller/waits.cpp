// How a session waits: with reports of what takes long, limits, and the failures that have come by the end.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>

#include "control/controller/controller.h"
#include "core/env.h"
#include "core/interpreter.h"
#include "core/log.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kTick = 50ms;        // how often a wait looks whether the workers live
constexpr auto kPatience = 3000ms;  // for the report of a failure whose consequence is there

}  // namespace

Clock::time_point Controller::deadline_of(Timeout timeout) {
  constexpr std::chrono::milliseconds kYear = std::chrono::hours(24 * 365);
  return timeout ? Clock::now() + std::min(*timeout, kYear) : Clock::time_point::max();
}

void Controller::drain() {
  while (auto bytes = workers_->channel().try_receive()) {
    Reply reply = decode_reply(*bytes);
    reply.failure.issued_at = sites_.text(reply.site);
    if (reply.kind == Reply::Kind::kPlaces || !reply.offers.empty()) move_apart(reply);
    if (reply.kind == Reply::Kind::kPlaces) continue;
    const bool is_answer = reply.kind == Reply::Kind::kValue || reply.kind == Reply::Kind::kToken ||
                           reply.kind == Reply::Kind::kPoisoned || (reply.kind == Reply::Kind::kError && reply.origin.worker < 0);
    if (is_answer) {
      if (reply.seq == awaited_) answer_ = std::move(reply);
      else if (reply.token) exchange_.take(reply.token);  // of a call that timed out
    } else if (reply.kind == Reply::Kind::kAck) {
      acks_[reply.worker] = std::max(acks_[reply.worker], reply.seq);
      std::erase_if(giving_, [&](const auto& asked) {  // a skipped command asks for nothing
        return asked.second.worker == reply.worker && asked.first < reply.seq;
      });
    } else {
      failures_.add(std::move(reply));
    }
  }
}

/// The worker waits in its command. A late answer, of a call that timed out, is moved, too: MPI would keep it.
void Controller::move_apart(Reply& reply) {
  const struct Settled {
    Transfers& transfers;
    int worker;
    uint64_t seq;
    ~Settled() { transfers.settle(worker, seq); }
  } settled{workers_->transfers(), reply.worker, reply.seq};
  std::optional<Wait> wait;
  const auto relax = [&] {
    if (!wait) wait.emplace(*this, fmt::format("tensors of worker {}, which travel,", reply.worker), sites_.last());
    wait->tick();
  };
  if (reply.kind == Reply::Kind::kValue) {
    std::vector<Tensor> large;
    std::exception_ptr no_memory;
    for (const Offer& offer : reply.offers) {
      try {
        large.push_back(workers_->transfers().take(reply.worker, offer, relax));
      } catch (const SystemError&) {  // the worker sends the others all the same
        no_memory = std::current_exception();
      }
    }
    if (no_memory) std::rethrow_exception(no_memory);
    reply.value = put_together(reply.value, large);
    return;
  }
  const Value here = reply.token ? exchange_.take(reply.token) : Value();
  const auto asked = giving_.find(reply.seq);
  if (asked == giving_.end()) return;
  const std::vector<Tensor>& tensors = asked->second.tensors;
  if (const auto* list = std::get_if<List>(&here.data())) {
    for (size_t i = 0; i < tensors.size(); ++i) list->at(i).as<Tensor>().copy_from(tensors[i]);
  } else {
    if (reply.offers.size() != tensors.size()) throw WireError("a worker makes room for other tensors than it was told of");
    for (size_t i = 0; i < tensors.size(); ++i) workers_->transfers().give(reply.worker, reply.offers[i], tensors[i], relax);
  }
  giving_.erase(asked);
}

void Controller::wait_for(uint64_t awaited, const std::function<bool()>& ready, Clock::time_point deadline,
                          const std::string& what, Where where) {
  auto look = [&] {
    drain();
    return ready();
  };
  std::optional<Wait> wait;
  try {
    for (auto now = Clock::now(); !workers_->channel().wait(std::min(deadline, now + kTick), awaited, std::cref(look));
         now = Clock::now()) {
      if (!wait) wait.emplace(*this, what, where, now);
      wait->tick();
      if (!closing_) check_interrupted();
      if (Clock::now() < deadline) continue;
      const TimeoutError error(fmt::format("[controller {}] {}: the limit has passed; calling again waits again\n{}{}",
                                           host_name(), wait->so_far(), report("the limit has passed"), failures_.not_raised()));
      dump_traces("time-out");
      throw error;  // NOLINT: a copy
    }
    timed_out_ = false;
  } catch (const TransportError& error) {
    lose(error);
  } catch (...) {
    timed_out_ = true;  // or the user of an interpreter has broken the wait off
    throw;
  }
}

Controller::Wait::Wait(Controller& controller, std::string what, Where where, Clock::time_point since)
    : controller_(controller), what_(std::move(what)), where_(where), since_(since), next_report_(since_ + controller.limit_) {}

std::string Controller::Wait::so_far() const {
  return fmt::format("{} at {}:{} has waited {:.1f} s, command {} of {} is finished everywhere", what_, where_.file, where_.line,
                     std::chrono::duration<double>(Clock::now() - since_).count(), controller_.workers_->channel().finished(),
                     controller_.seq_.load());
}

void Controller::Wait::tick() {
  controller_.workers_->channel().check_alive();
  if (Clock::now() < next_report_) return;
  next_report_ += controller_.limit_;
  log_line(LogLevel::kWarn, controller_.report(so_far()));
}

void Controller::lose(const TransportError& error) {
  try {
    drain();
  } catch (const std::exception& damaged) {
    log(LogLevel::kDebug, "{}", damaged.what());
  }
  lost_ = error.what() + failures_.not_raised();
  has_lost_ = true;
  dump_traces("lost");
  throw TransportError(lost_);
}

void Controller::await_ack(int worker, Clock::time_point deadline, Where where) {
  Command command{.action = Action::kSyncWorker, .worker = worker};
  const uint64_t seq = issue(command, where, deadline);
  wait_for(
      seq, [&] { return acks_[worker] >= seq; }, deadline, fmt::format("sync_worker({})", worker), where);
}

void Controller::sync_locked(int worker, Clock::time_point deadline, Where where) {
  if (worker == kAllWorkers) {
    Command command{.action = Action::kSyncWorker, .worker = kAllWorkers};
    const uint64_t seq = issue(command, where, deadline);
    wait_for(
        seq, [&] { return workers_->channel().finished() >= seq; }, deadline, "sync_all", where);
    drain();  // what came before the last finished
    raise_failures(true, deadline, where);
  } else {
    await_ack(worker, deadline, where);
    raise_failures(false, deadline, where);
  }
}

void Controller::sync(int worker, Timeout timeout, Where where) {
  Turn turn(*this);
  refuse_to_record("a sync");
  if (worker != kAllWorkers) check_worker(worker, "sync_worker");
  sync_locked(worker, deadline_of(timeout), where);
}

void Controller::await_all(const char* what, Where where) {
  Turn turn(*this);
  if (is_recording()) return;  // each replay reads the caller's memory
  const uint64_t seq = seq_.load();
  wait_for(
      seq, [&] { return workers_->channel().finished() >= seq; }, Clock::time_point::max(), what, where);
}

/// A consequence is told by its origin's report, which is under way, unless that worker caught its error and computes on.
void Controller::await_origins(Clock::time_point deadline, Where where) {
  std::map<int, uint64_t> asked;
  for (const int worker : failures_.silent())
    if (has_room()) {
      Command command{.action = Action::kSyncWorker, .worker = worker};
      asked[worker] = issue(command, where);
    }
  const auto all_answer = [&] {
    drain();
    return std::all_of(asked.begin(), asked.end(), [&](const auto& entry) { return acks_[entry.first] >= entry.second; });
  };
  try {
    while (!workers_->channel().wait(std::min(deadline, Clock::now() + kTick), Channel::kNone, all_answer) &&
           Clock::now() < deadline)
      workers_->channel().check_alive();
  } catch (const TransportError& error) {
    lose(error);
  }
}

void Controller::raise_failures(bool all_is_in, Clock::time_point deadline, Where where) {
  if (!all_is_in) await_origins(std::min(deadline, Clock::now() + kPatience), where);
  if (!failures_.has_news()) {
    failures_.raise();  // consequences of what was raised before
    return;
  }
  if (!over_) dump_traces("error");
  auto failures = failures_.raise();
  throw RemoteError(std::move(failures));
}

}  // namespace tutti::detail
