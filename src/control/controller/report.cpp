// What a session says of its workers when somebody asks, or waits for long.
#include <fmt/format.h>

#include "collective/nccl/ras.h"
#include "control/controller/controller.h"
#include "core/log.h"

namespace tutti::detail {
namespace {

constexpr std::chrono::seconds kLookFor{2};  // for nodes to say what their workers do

/// Sessions that may be asked, of this process.
struct Live {
  std::mutex mutex;
  std::set<Controller*> sessions;
};
Live& live() {
  static auto& all = *new Live;
  return all;
}

}  // namespace

void Controller::dump_traces(const char* reason) {
  if (layout_.trace_folder.empty()) return;
  std::lock_guard lock(look_mutex_);
  if (dumps_ < kMostDumps) workers_->inspector().dump({.number = dumps_++, .reason = reason});
}

void Controller::set_live(bool is_live) {
  std::lock_guard lock(live().mutex);
  if (is_live) live().sessions.insert(this);
  else live().sessions.erase(this);
}

bool Controller::is_idle_on_one_node() {
  return !over_ && lost_.empty() && layout_.num_nodes() == 1 && workers_->channel().finished() >= seq_.load();
}

std::string Controller::report(std::string_view why) {
  std::vector<WorkerState> states;
  bool may_have_nccl = false;
  {
    std::lock_guard lock(look_mutex_);
    if (!workers_) return {};
    may_have_nccl = may_have_gpus_;
    states = workers_->inspector().look(Clock::now() + kLookFor, true);
  }
  return fmt::format("hang report of the {} session with {} workers: {}\n{}{}", kind_, layout_.num_workers, why,
                     hang_report(states, layout_.num_workers, seq_.load()), may_have_nccl ? nccl::ras_status() : "");
}

Progress Controller::progress() {
  std::lock_guard lock(look_mutex_);
  Progress progress{.issued = seq_.load(), .finished = seq_.load(), .workers = {}};
  if (over_) return progress;
  for (WorkerState& state : workers_->inspector().look(Clock::now() + kLookFor, false)) {
    progress.finished = std::min(progress.finished, state.finished);
    progress.workers.push_back(
        {state.worker, std::move(state.host), state.pid, state.finished, std::move(state.doing), state.seconds});
  }
  return progress;
}

void Controller::report_all(std::string_view why) {
  std::lock_guard lock(live().mutex);
  if (live().sessions.empty()) log_line(LogLevel::kWarn, fmt::format("{}: no session is live", why));
  for (Controller* controller : live().sessions) {
    log_line(LogLevel::kWarn, controller->report(why));
    controller->dump_traces("SIGUSR2");
  }
}

}  // namespace tutti::detail
