#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>

#include "collective/mpi/mpi_handles.h"
#include "control/channel/mpi/find_nodes.h"
#include "control/channel/mpi/leader.h"
#include "control/channel/workers.h"
#include "control/wire/exchange.h"

namespace tutti::detail {

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
  const Nodes& nodes() const { return nodes_; }

  void serve();  ///< rank above 0: takes part in sessions until rank 0 ends the job
  void end();    ///< rank 0: sends the others home

  /// Rank 0: the control channel of a new session on ranks 0..num_workers-1.
  std::unique_ptr<Workers> start_session(int num_workers, int num_groups, Exchange& exchange, std::chrono::milliseconds timeout);
  bool is_starting() const { return starting_; }  ///< or has failed to: ranks may wait in a session that is none
  void end_if_abandoned(Segment& segment);        ///< MPI_Abort, with what the segment says
  void* data() { return &data_raw_; }

 private:
  void serve_session(const Layout& layout);
  void drain();

  bool owns_mpi_;
  std::function<void()> finalised_;
  int finalise_key_ = MPI_KEYVAL_INVALID;  // an attribute of MPI_COMM_SELF, which goes first
  int rank_ = 0, size_ = 1;
  MpiComm control_, data_;
  LeaderMail mail_;
  MPI_Comm data_raw_ = MPI_COMM_NULL;
  Nodes nodes_;
  bool starting_ = false;
};

}  // namespace tutti::detail
