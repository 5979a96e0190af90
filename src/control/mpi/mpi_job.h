#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>

#include "collective/mpi/mpi_handles.h"
#include "control/channel.h"
#include "control/exchange.h"
#include "control/mpi/leader.h"

namespace tutti {

/// Messages on the control communicator by what they are for.
enum class Tag : int { kPool = 1, kSegment = 2, kReady = 3, kLeader = 4 };

/// MPI_Abort, also where MPI itself is stuck. Ranks other than 0 wait 0.5 s first: mpirun 4.1 may crash of two at once.
[[noreturn]] void abort_job(int code);
/// The session is lost: says why and aborts the job. Where the launcher is out of reach the node's other ranks see us end
/// (PeerWatch).
[[noreturn]] void end_node(Segment& segment);

/// The ranks of an MPI job as a pool: rank 0 starts sessions on ranks 0..n-1, one at a time; the others sleep.
class MpiJob {
 public:
  /// Whether a launcher started this process as one of its ranks.
  static bool launched();
  /// Initialises MPI if nobody has; returns whether it did: then the last MpiJob finalises it.  @throws UsageError  the library
  /// lacks MPI_THREAD_MULTIPLE, or was initialised without it, or is finalised
  static bool initialise(int* argc, char*** argv);

  /// The ranks of `comm`. Collective. `finalised` is called if somebody else calls MPI_Finalize while the job is there, at its
  /// start: MPI still works, the job may be destroyed.  @throws UsageError, SystemError
  MpiJob(MPI_Comm comm, bool owns_mpi, const std::string& bind, std::function<void()> finalised);
  ~MpiJob();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int ranks_per_node() const;  ///< of the job when all nodes have equally many, else 0
  int num_nodes() const;

  void serve();  ///< rank above 0: takes part in sessions until rank 0 ends the job
  void end();    ///< rank 0: sends the others home

  /// Rank 0: the control channel of a new session on ranks 0..num_workers-1.
  std::unique_ptr<Channel> start_session(int num_workers, int num_groups, Exchange& exchange, std::chrono::milliseconds timeout);
  bool is_starting() const { return starting_; }  ///< or has failed to: ranks may wait in a session that is none
  void end_if_abandoned(Segment& segment);        ///< MPI_Abort, with what the segment says
  MPI_Comm control() const { return control_.get(); }
  LeaderMail& mail() { return mail_; }
  void* data() { return &data_raw_; }

 private:
  void find_nodes(const std::string& bind);
  void serve_session(const Layout& layout);
  void drain();

  bool owns_mpi_;
  std::function<void()> finalised_;
  int finalise_key_ = MPI_KEYVAL_INVALID;  // an attribute of MPI_COMM_SELF, which goes first
  int rank_ = 0, size_ = 1;
  MpiComm control_, data_;
  LeaderMail mail_;
  MPI_Comm data_raw_ = MPI_COMM_NULL;
  std::vector<int32_t> node_of_, machine_of_;  // by rank
  int machine_cores_ = 1;                      // fewest that the ranks of one machine may use together
  bool starting_ = false;
};

}  // namespace tutti
