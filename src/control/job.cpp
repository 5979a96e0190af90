#include "control/job.h"

#include <fmt/format.h>

#include <cstdio>

#include "control/exit_codes.h"
#include "control/worker.h"
#include "core/env.h"

namespace tutti {
namespace {

[[noreturn]] void abort_because(const std::string& why) {
  fmt::print(stderr, "[rank {} {}] {}\n", Job::here().mpi->rank(), host_name(), why);
  abort_job(kExitUncaught);
}

/// MPI goes while the job is there: what is live ends first, for nothing can after.
void mpi_goes() {
  Job& job = Job::here();
  if (job.mpi->rank() != 0 || Worker::current()) abort_because("MPI_Finalize was called on a worker, while rank 0 may still need its ranks");
  if (auto controller = job.controller.lock()) controller->close();
  if (!job.live_session.empty())
    abort_because(fmt::format("MPI_Finalize was called, but the session made at {} can't be ended", job.live_session));
  job.end();
  job.mpi_is_over = true;
}

}  // namespace

Job& Job::here() {
  static Job* instance = new Job;  // leaked: MPI must not be finalised by a static destructor
  return *instance;
}

void Job::start(std::string by, MPI_Comm comm, bool owns_mpi) {
  mpi = std::make_unique<MpiJob>(comm, owns_mpi, mpi_goes);
  owner = std::move(by);
}

void Job::serve() try {
  mpi->serve();
} catch (const std::exception& error) {
  abort_because(error.what());
}

void Job::end() {
  if (mpi && mpi->rank() == 0) mpi->end();
  mpi.reset();
  owner.clear();
  live_session.clear();
}

}  // namespace tutti
