#include "control/thread/thread_channel.h"

#include <fmt/format.h>

#include "control/exit_codes.h"
#include "control/worker.h"
#include "core/env.h"

namespace tutti {

ThreadChannel::ThreadChannel(const Layout& layout, Exchange& exchange)
    : SegmentChannel(std::make_unique<Segment>(Segment::Kind::kPrivate, layout, 0)) {
  try {
    for (int id = 0; id < layout.num_workers; ++id)
      threads_.emplace_back([this, id, &exchange] {
        Worker(segment(), id, id == 0 ? &exchange : nullptr, nullptr).serve();
      });
  } catch (const std::exception& error) {  // a limit on threads, say
    segment().abandon(error.what());
    const size_t started = threads_.size();
    threads_.clear();
    throw SystemError(fmt::format("ThreadedSession: {} of {} worker threads could be started on {}: {}", started, layout.num_workers,
                                  host_name(), error.what()));
  }
}

void ThreadChannel::give_up(std::string_view why) noexcept {
  segment().abandon(why);
  for (const WorkerThread& thread : threads_)
    if (!thread.ends_within(kGrace)) end_process(kExitTimedOut);  // a thread can't be ended, and what it uses can't be freed
  close();
}

}  // namespace tutti
