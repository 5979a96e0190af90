#include "control/job.h"

#include <fmt/format.h>

#include <cstdio>

#include "control/channel/mpi/end_job.h"
#include "control/worker/worker.h"
#include "core/env.h"
#include "core/exit_codes.h"

namespace tutti::detail {
namespace {

/// MPI goes while the job is there: what is live ends first, for nothing can after. MPI_Finalize wants no other thread inside MPI
/// (MPICH stops locking before it tells us), so only a session that is idle can be ended here.
void mpi_goes() {
  Job& job = Job::here();
  if (job.mpi->rank() != 0 || Worker::current())
    job.abort("MPI_Finalize was called on a worker, while rank 0 may still need its ranks");
  if (auto controller = job.controller.lock(); controller && controller->is_idle_on_one_node()) controller->close();
  if (!job.live_session.empty())
    job.abort(
        fmt::format("MPI_Finalize was called while the session made at {} is at work; shut it down before", job.live_session));
  job.end();
  job.mpi_is_over = true;
}

}  // namespace

Job& Job::here() {
  static Job* instance = new Job;  // leaked: MPI must not be finalised by a static destructor
  return *instance;
}

void Job::start(std::string by, MPI_Comm comm, bool owns_mpi, const std::string& bind) {
  mpi = std::make_unique<MpiJob>(comm, owns_mpi, bind, mpi_goes);
  owner = std::move(by);
}

void Job::serve() try { mpi->serve(); } catch (const std::exception& error) {
  abort(error.what());
}

void Job::end() {
  owner.clear();
  live_session.clear();
  const auto ending = std::move(mpi);
  if (ending && ending->rank() == 0) ending->end();
}

void Job::abort(const std::string& why) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  fmt::print(stderr, "[rank {} {}] {}\n", rank, host_name(), why);
  abort_job(kExitUncaught);
}

}  // namespace tutti::detail
