#include "control/channel/thread/thread_workers.h"

#include <fmt/format.h>

#include <algorithm>

#include "control/worker/worker.h"
#include "core/env.h"
#include "core/exit_codes.h"
#include "core/log.h"

namespace tutti::detail {

ThreadWorkers::ThreadWorkers(const Layout& layout, Exchange& exchange)
    : SegmentWorkers(std::make_unique<Segment>(Segment::Kind::kPrivate, layout, 0)) {
  try {
    worker0_ = std::make_unique<Worker0>(segment(), &exchange, nullptr);
    for (int id = 1; id < layout.num_workers; ++id)
      threads_.emplace_back([this, id, &exchange] {
        try {
          Worker(segment(), id, &exchange, nullptr).serve();
        } catch (const std::exception& error) {  // no memory to set it up
          Worker::give_up(segment(), id, error);
        }
      });
  } catch (const std::exception& error) {  // a limit on threads, say
    segment().abandon(error.what());
    const size_t started = threads_.size() + (worker0_ ? 1 : 0);
    threads_.clear();
    worker0_.reset();
    throw SystemError(fmt::format("ThreadedSession: {} of {} worker threads could be started on {}: {}", started,
                                  layout.num_workers, host_name(), error.what()));
  }
}

bool ThreadWorkers::all_end_within(std::chrono::milliseconds limit) {
  return worker0_->ends_within(limit) &&
         std::all_of(threads_.begin(), threads_.end(), [&](const WorkerThread& thread) { return thread.ends_within(limit); });
}

void ThreadWorkers::close() noexcept {
  if (segment().abandoned() && !all_end_within(kGrace))
    log_line(LogLevel::kWarn,
             fmt::format("the session is over, but for threads that are waited for:\n{}",
                         hang_report(look_at(segment()), layout().num_workers, segment().board().member(0).finished_seq.load())));
  threads_.clear();
  if (worker0_->joinable()) worker0_->join();
}

void ThreadWorkers::give_up(std::string_view why) noexcept {
  segment().abandon(why);
  if (!all_end_within(kGrace)) end_process(kExitTimedOut);  // a thread can't be ended, and what it uses can't be freed
  close();
}

}  // namespace tutti::detail
