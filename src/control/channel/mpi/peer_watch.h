#pragma once

#include <thread>

#include "control/segment/segment.h"
#include "core/handle.h"

namespace tutti::detail {

/// Notices that a process of this node has ended in the middle of a session, whatever the launcher makes of it: the leader
/// watches the others, they watch the leader. A thread that sleeps in the kernel. Half a second later, which is the launcher's,
/// the session is abandoned; a rank that is still there after some more seconds aborts the job. One that was told of an abandoned
/// session and whose leader has gone ends at once.
class PeerWatch {
 public:
  PeerWatch(Segment& segment, int worker);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  void watch();
  bool stopped_within(std::chrono::milliseconds time) const;
  void lose(int worker);

  Segment& segment_;
  int worker_;
  Fd stop_;
  std::jthread thread_;
};

}  // namespace tutti::detail
