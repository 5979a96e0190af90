// tutti/interop/mpi.h: sessions from communicators and communicators from sessions.
#include "tutti/interop/mpi.h"

#include <fmt/format.h>

#include "control/job.h"
#include "control/launch.h"
#include "control/worker/comm_handle.h"

namespace tutti::interop {
using namespace detail;

Session session_from(MPI_Comm comm, SessionOptions options, Where where) {
  struct Made : Session {
    explicit Made(std::shared_ptr<detail::Controller> controller) : Session(std::move(controller)) {}
  };
  constexpr const char* kWhat = "interop::session_from";
  Job& job = Job::here();
  if (Worker::current()) throw UsageError(fmt::format("{}: worker functions can't make sessions", kWhat));
  if (!job.owner.empty())
    throw UsageError(fmt::format("{}: this process serves {} already; {}", kWhat, job.owner,
                                 job.owner == "tutti::run" ? "use Session::create there" : "shut that session down first"));
  if (!mpi_usable()) throw UsageError(fmt::format("{}: MPI is not initialised, or finalised", kWhat));
  int is_inter = 0;
  if (comm != MPI_COMM_NULL) MPI_Comm_test_inter(comm, &is_inter);
  if (comm == MPI_COMM_NULL || is_inter)
    throw UsageError(
        fmt::format("{}: expected an intracommunicator, got {}", kWhat, is_inter ? "an intercommunicator" : "MPI_COMM_NULL"));
  MpiJob::initialise(nullptr, nullptr);  // it is: the thread level is looked at
  job.start(fmt::format("the session made at {}:{}", where.file, where.line), comm, false);
  if (job.mpi->rank() != 0) {
    job.serve();
    job.end();
    return Made(nullptr);
  }
  try {
    return Made(make_job_session(options, kWhat, where, [] { Job::here().end(); }));
  } catch (const std::exception& error) {
    if (!job.live_session.empty()) job.abort(error.what());  // the others are in a session that is none
    job.end();
    throw;
  }
}

MPI_Comm communicator(const Comm& comm) {
  const auto& handle = detail::CommHandle::of(comm);
  return *static_cast<MPI_Comm*>(handle.collectives().user_comm(handle.members));
}

}  // namespace tutti::interop
