#include "control/worker/outbox.h"

#include <span>

namespace tutti::detail {

void Outbox::put(const Reply& reply) {
  if (answers_) return answers_->push_back(encode(reply));
  Writer frame;
  encode_frame(frame, reply);
  std::span<const std::byte> rest = frame.view();
  RingWriter ring = segment_.replies(worker_);
  Doorbell& space = segment_.slot(worker_).reply_space;
  while (!rest.empty() && !segment_.abandoned()) {
    const size_t enough = ring.worthwhile(rest.size());
    wait_until(space, policy_, Clock::now() + std::chrono::seconds(1), [&] { return ring.space(enough) >= enough; });
    rest = rest.subspan(ring.write_some(rest));
    segment_.header().controller.ring();
  }
}

}  // namespace tutti::detail
