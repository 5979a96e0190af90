#pragma once

#include <thread>

#include "control/channel/mpi/leader.h"

namespace tutti::detail {

/// Drives a leader, so that one whose worker computes starves nobody.
class LeaderThread final : public Leader {
 public:
  LeaderThread(Segment& segment, int node, MPI_Comm control, LeaderMail& mail);
  ~LeaderThread();
  LeaderThread(const LeaderThread&) = delete;
  LeaderThread& operator=(const LeaderThread&) = delete;
  void stop_after(uint64_t seq);  ///< lets the thread end once it has passed on everything up to `seq`
  void stop_now() { abandoned_.store(true); }
  void stay_awake();   ///< a while: a message will come soon, for which MPI has no doorbell
  void check() const;  ///< @throws TransportError  the thread met an MPI error, or a part of the job is lost

 private:
  void run();
  bool done();
  void lose(const std::string& why);

  std::atomic<uint64_t> stop_seq_{UINT64_MAX};
  std::atomic<bool> abandoned_{false};
  std::atomic<Clock::rep> last_work_{0};
  std::string failure_;
  std::thread thread_;
};

}  // namespace tutti::detail
