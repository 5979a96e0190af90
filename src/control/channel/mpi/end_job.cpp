#include "control/channel/mpi/end_job.h"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <thread>

#include "control/channel/channel.h"
#include "control/exit_codes.h"
#include "control/watch/trace_file.h"
#include "core/env.h"
#include "core/process.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
constexpr auto kFirstAbort = 500ms;  // for rank 0 to end the job: mpirun 4.1 may crash when two ranks abort it at once
constexpr auto kForwarded = 100ms;   // a launcher that hears of the abort first may drop what was written before it: why

}  // namespace

void abort_job(int code) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) std::this_thread::sleep_for(kFirstAbort);
  std::thread([code] {
    std::this_thread::sleep_for(2s);
    _exit(code);
  }).detach();
  std::fflush(stdout);
  std::this_thread::sleep_for(kForwarded);
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

void end_node(Segment& segment) {
  static std::mutex once;  // the leader's thread and the worker's may both come here
  once.lock();
  fmt::print(stderr, "[rank {} {}] the session is over: {}\n", segment.workers().front(), host_name(),
             segment.board().header().why);
  write_traces(segment, {.number = kMostDumps, .reason = "lost"});
  if (segment.layout().num_nodes() > 1) std::this_thread::sleep_for(kGrace);  // other nodes are being told
  abort_job(kExitUncaught);
}

}  // namespace tutti
