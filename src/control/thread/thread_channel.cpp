#include "control/thread/thread_channel.h"

#include "control/worker.h"

namespace tutti {

ThreadChannel::ThreadChannel(const Layout& layout, Exchange& exchange)
    : SegmentChannel(std::make_unique<Segment>(Segment::Kind::kPrivate, layout, 0)) {
  for (int id = 0; id < layout.num_workers; ++id)
    threads_.emplace_back([this, id, &exchange] {
      Worker(segment(), id, id == 0 ? &exchange : nullptr, nullptr).serve();
    });
}

}  // namespace tutti
