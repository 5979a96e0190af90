#include "control/thread/thread_channel.h"

#include <fmt/format.h>

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

}  // namespace tutti
