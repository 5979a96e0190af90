#include "control/channel/mpi/end_job.h"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <thread>

#include "control/channel/workers.h"
#include "control/watch/trace_file.h"
#include "core/env.h"
#include "core/exit_codes.h"
#include "core/process.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto kFirstAbort = 500ms;  // for rank 0 to end the job: mpirun 4.1 may crash when two ranks abort it at once
constexpr auto kForwarded = 100ms;   // a launcher that hears of the abort first may drop what was written before it: why

}  // namespace

/// `wait`: for another rank to do it.
[[noreturn]] static void abort_after(std::chrono::milliseconds wait, int code) {
  std::thread([wait, code] {  // another thread may hold stdout, or MPI be stuck
    std::this_thread::sleep_for(wait + 2s);
    _exit(code);
  })
      .detach();
  std::fflush(stdout);
  std::this_thread::sleep_for(wait + kForwarded);
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

void abort_job(int code) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  abort_after(rank == 0 ? 0ms : kFirstAbort, code);
}

void end_node(Segment& segment) {
  static std::mutex once;  // the leader's thread and the worker's may both come here
  once.lock();
  fmt::print(stderr, "[rank {} {}] the session is over: {}\n", segment.workers().front(), host_name(),
             segment.board().header().why);
  write_traces(segment, {.number = kMostDumps, .reason = "lost"});
  if (segment.layout().num_nodes() > 1) std::this_thread::sleep_for(kGrace);  // other nodes are being told
  abort_after(segment.has(0) ? 0ms : kFirstAbort, kExitUncaught);  // the controller's node first, whatever its rank in the world
}

}  // namespace tutti::detail
