#include "control/channel/node/process_workers.h"

#include <fmt/format.h>
#include <signal.h>

#include "control/worker/worker.h"
#include "core/env.h"
#include "core/exit_codes.h"
#include "core/log.h"

namespace tutti::detail {

ProcessWorkers::ProcessWorkers(const Layout& layout, Exchange& exchange, std::chrono::milliseconds start_timeout)
    : SegmentWorkers(std::make_unique<Segment>(Segment::Kind::kShared, layout, 0)),
      processes_(ProcessPool::instance().take(static_cast<size_t>(layout.num_workers - 1))) {
  try {
    for (int id = 1; id < layout.num_workers; ++id) start_session(processes_[static_cast<size_t>(id - 1)], segment(), id);
    for (int id = 1; id < layout.num_workers; ++id) await_answer(processes_[static_cast<size_t>(id - 1)], id, start_timeout);
    worker0_ = std::make_unique<Worker0>(segment(), &exchange, nullptr);
  } catch (...) {
    kill_all("the session did not start");
    throw;
  }
}

void ProcessWorkers::check_alive() {
  SegmentWorkers::check_alive();  // a worker that gives up says why, and its process may end then
  for (size_t i = 0; i < processes_.size(); ++i)
    if (auto how = how_it_ended(processes_[i].pid)) {
      const pid_t pid = std::exchange(processes_[i].pid, -1);
      const int worker = static_cast<int>(i + 1);
      const std::string why =
          fmt::format("worker {} (pid {} on {}) was lost: {} {}; the session is over, a new one starts fresh workers", worker,
                      pid, host_name(), *how, last_seen(segment(), worker));
      kill_all(why);
      throw TransportError(why);
    }
}

void ProcessWorkers::resume() noexcept {
  for (const WorkerProcess& process : processes_)
    if (process.pid > 0) ::kill(process.pid, SIGCONT);
}

void ProcessWorkers::kill_all(std::string_view why) noexcept {
  segment().abandon(why);  // worker 0 may wait inside a collective for one that never comes
  for (const WorkerProcess& process : processes_)
    if (process.pid > 0) kill_process(process.pid);
  processes_.clear();
}

void ProcessWorkers::give_up(std::string_view why) noexcept {
  kill_all(why);
  if (!worker0_->ends_within(kGrace)) end_process(kExitTimedOut);
  close();
}

void ProcessWorkers::close() noexcept {
  if (segment().abandoned() && !worker0_->ends_within(kGrace))
    log_line(LogLevel::kWarn,
             fmt::format("the session is over, but for worker 0, which is waited for: {}",
                         hang_report(look_at(segment()), layout().num_workers, segment().board().member(0).finished_seq.load())));
  if (worker0_->joinable()) worker0_->join();
  try {
    for (size_t i = 0; i < processes_.size(); ++i) await_answer(processes_[i], static_cast<int>(i + 1), std::chrono::seconds(10));
    ProcessPool::instance().give_back(std::move(processes_));
    processes_.clear();
  } catch (const std::exception& error) {
    log(LogLevel::kWarn, "{}", error.what());
    kill_all(error.what());
  }
}

}  // namespace tutti::detail
