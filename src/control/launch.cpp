// The ways to get a session, and tutti::run.
#include "control/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "control/channel/mpi/end_job.h"
#include "control/channel/node/process_workers.h"
#include "control/channel/thread/thread_workers.h"
#include "control/job.h"
#include "control/worker/fault.h"
#include "control/worker/worker.h"
#include "core/env.h"
#include "core/exit_codes.h"
#include "core/log.h"
#include "core/process.h"
#include "core/settings.h"
#include "core/signals.h"
#include "core/type_name.h"
#include "tutti/interop/embed.h"

namespace tutti {
using namespace detail;
namespace {

void check_shape(int num_workers, int num_groups, const char* what) {
  if (num_workers < 1) throw UsageError(fmt::format("{}: num_workers is {}, expected at least 1", what, num_workers));
  if (num_groups < 1 || num_workers % num_groups != 0)
    throw UsageError(fmt::format("{}: num_groups is {}, expected a divisor of num_workers ({})", what, num_groups, num_workers));
}

#ifdef OPEN_MPI
constexpr const char *kSrun = "srun --mpi=pmix", *kPerNode = "--map-by ppr:{}:node";
#else
constexpr const char *kSrun = "srun --mpi=pmi2", *kPerNode = "-ppn {}";
#endif

/// A launcher that does not fit the MPI library starts so many jobs of one rank.
void check_launcher(int size) {
  if (size > 1 || settings().alone) return;
  const bool by_mpirun = env_string("OMPI_COMM_WORLD_SIZE") || env_string("PMI_SIZE");
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const bool is_slurm = std::string_view(name).starts_with("SLURM");
    if (is_slurm && (by_mpirun || env_string("SLURM_PTY_PORT"))) continue;  // mpirun inside a step; a shell of srun --pty
    if (const int64_t tasks = env_int(name, 1, 0, INT64_MAX); tasks > 1)
      throw SetUpError(
          fmt::format("{} tasks were started ({}) that do not know of each other; tutti is built with {}: use its mpirun, or "
                      "{}. If they are meant to be {} jobs of one rank: TUTTI_ALONE=1",
                      tasks, name, mpi_library(), kSrun, tasks));
  }
}

void refuse_on_worker(const char* what) {
  if (const Worker* worker = Worker::current())
    throw UsageError(
        fmt::format("{}: a worker function can't make a session (worker {}, command {}); the controller can have several", what,
                    worker->id(), worker->seq()));
}

std::shared_ptr<Controller> make(const std::string& kind, SessionOptions options, std::function<void()> closed = {}) {
  read_settings();
  check_faults();  // what is wrong there is the caller's error, not a worker's
  return std::make_shared<Controller>(
             kind,
             [&](Exchange& exchange) {
               return start_workers(kind, options.num_workers, options.num_groups, exchange, options.start_timeout);
             },
             options.timeout, std::move(closed))
      ->handle();
}

}  // namespace

std::shared_ptr<Controller> detail::make_job_session(SessionOptions options, const char* what, Where where,
                                                     std::function<void()> closed) {
  refuse_on_worker(what);
  Job& job = Job::here();
  if (job.mpi_is_over) throw UsageError(fmt::format("{}: MPI has been finalised; make sessions before", what));
  if (job.owner.empty())
    throw UsageError(
        fmt::format("{}: the program does not use tutti::run; write int main(int argc, char** argv) {{ return "
                    "tutti::run(argc, argv, controller); }}, or use ThreadedSession",
                    what));
  if (job.owner == "tutti::run") check_launcher(job.size());
  if (job.mpi && job.mpi->rank() != 0)
    throw UsageError(fmt::format("{}: only rank 0 makes sessions, this is rank {}", what, job.mpi->rank()));
  if (options.num_workers == 0) options.num_workers = job.size();
  check_shape(options.num_workers, options.num_groups, what);
  if (options.num_workers > job.size())
    throw UsageError(fmt::format("{}: {} workers asked for, the job has {} rank{}; launch with mpirun -n {} or more", what,
                                 options.num_workers, job.size(), job.size() == 1 ? "" : "s", options.num_workers));
  if (!job.live_session.empty()) {
    const auto live = job.controller.lock();  // none: a session that was not lost has given its ranks back
    if (!live || live->is_lost())
      throw UsageError(fmt::format(
          "{}: the session made at {} was lost, and with it this job's ranks, which MPI can't replace; end the program and "
          "start it again",
          what, job.live_session));
    throw UsageError(
        fmt::format("{}: the ranks are taken by the session made at {}; shut it down first", what, job.live_session));
  }
  job.live_session = fmt::format("{}:{}", where.file, where.line);
  try {
    auto session = make("mpi", options, std::move(closed));
    job.controller = session->weak_from_this();
    return session;
  } catch (...) {
    if (!job.mpi || !job.mpi->is_starting()) job.live_session.clear();  // else ranks wait in it
    throw;
  }
}

namespace {

void ranks_are_free() { Job::here().live_session.clear(); }

int run_controller(int argc, char** argv, const std::function<int(int, char**)>& controller) try {
  return controller(argc, argv);
} catch (const SetUpError& error) {
  fmt::print(stderr, "[{} pid {}] {}\n", host_name(), getpid(), error.what());
  return kExitSetUpError;
} catch (const Preempted& error) {
  fmt::print(stderr, "[rank 0 {}] {}\n", host_name(), error.what());
  return kExitPreempted;
} catch (const TimeoutError& error) {
  fmt::print(stderr, "[rank 0 {}] time-out in the controller: {}\n", host_name(), error.what());
  return kExitTimedOut;
} catch (const std::exception& error) {
  fmt::print(stderr, "[rank 0 {}] uncaught exception in the controller: {}\n", host_name(), what_of(error));
  return kExitUncaught;
} catch (...) {
  fmt::print(stderr, "[rank 0 {}] uncaught exception in the controller\n", host_name());
  return kExitUncaught;
}

}  // namespace

std::unique_ptr<Workers> detail::start_workers(std::string_view name, int num_workers, int num_groups, Exchange& exchange,
                                               std::chrono::milliseconds start_timeout) {
  if (name == "mpi" && Job::here().mpi) return Job::here().mpi->start_session(num_workers, num_groups, exchange, start_timeout);
  const Layout layout = Layout::one_node(num_workers, num_groups);
  // a job of one rank without MPI is a thread
  if (name == "thread" || (name == "mpi" && num_workers == 1)) return std::make_unique<ThreadWorkers>(layout, exchange);
  if (name == "process") return std::make_unique<ProcessWorkers>(layout, exchange, start_timeout);
  throw UsageError(fmt::format("no back end '{}' for {} workers here; expected thread, process or mpi", name, num_workers));
}

Session Session::create(SessionOptions options, Where where) {
  return Session(make_job_session(options, "Session::create", where, ranks_are_free));
}

ThreadedSession::ThreadedSession(int num_workers, int num_groups, Where where)
    : ThreadedSession(SessionOptions{.num_workers = num_workers, .num_groups = num_groups}, where) {}

ThreadedSession::ThreadedSession(const SessionOptions& options, Where) {
  refuse_on_worker("ThreadedSession");
  check_shape(options.num_workers, options.num_groups, "ThreadedSession");
  controller_ = make("thread", options);
}

ProcessSession::ProcessSession(int num_workers, int num_groups, Where where)
    : ProcessSession(SessionOptions{.num_workers = num_workers, .num_groups = num_groups}, where) {}

ProcessSession::ProcessSession(const SessionOptions& options, Where where) {
  refuse_on_worker("ProcessSession");
  check_shape(options.num_workers, options.num_groups, "ProcessSession");
  controller_ = Job::here().mpi ? make_job_session(options, "ProcessSession", where, ranks_are_free) : make("process", options);
}

SocketSession::SocketSession(int num_nodes, int num_workers_per_node, int num_groups, std::string_view, int, Where where) {
  const int nodes = Job::here().mpi ? Job::here().mpi->nodes().count() : 1,
            per_node = Job::here().mpi ? Job::here().mpi->nodes().ranks_each() : 1;
  if (num_nodes != nodes || num_workers_per_node != per_node)
    throw UsageError(fmt::format(
        "SocketSession: the job has {} node(s) with {} rank(s) each, asked for {} x {}; launch it as "
        "mpirun -n {} {} PROGRAM or {} -N {} --ntasks-per-node={} PROGRAM",
        nodes, per_node ? std::to_string(per_node) : "unequal", num_nodes, num_workers_per_node, num_nodes * num_workers_per_node,
        fmt::format(fmt::runtime(kPerNode), num_workers_per_node), kSrun, num_nodes, num_workers_per_node));
  controller_ = make_job_session({.num_workers = num_nodes * num_workers_per_node, .num_groups = num_groups}, "SocketSession",
                                 where, ranks_are_free);
}

namespace {
uint32_t job_generation = 0;  // of the process that started it
}

std::optional<int> interop::start_job(int* argc, char*** argv, const RunOptions& options) {
  reserve_standard_streams();
  Job& job = Job::here();
  if (!job.owner.empty()) throw UsageError(fmt::format("tutti::run: this process serves {} already", job.owner));
  try {
    if (auto code = serve_if_worker_process()) return code;
    watch_signals(MpiJob::launched());
    if (MpiJob::launched() || mpi_usable()) {
      const bool owns_mpi = MpiJob::initialise(argc, argv);
      job.start("tutti::run", MPI_COMM_WORLD, owns_mpi, options.bind);
    }
    if (!job.mpi || job.mpi->rank() == 0) report_on_signal(detail::Controller::report_all);
  } catch (const std::exception& error) {
    fmt::print(stderr, "[{} pid {}] tutti::run: {}\n", host_name(), getpid(), error.what());
    if (mpi_usable()) abort_job(kExitSetUpError);  // other ranks may be in the middle of theirs
    std::exit(kExitSetUpError);
  }
  job.owner = "tutti::run";
  job_generation = process_generation();
  if (!job.mpi || job.mpi->rank() == 0) return std::nullopt;
  job.serve();
  job.end();
  return 0;
}

void interop::end_job(int code) {
  if (process_generation() != job_generation) return;  // a fork of the process whose job it is
  Job& job = Job::here();
  ProcessPool::instance().end_all();
  if (job.mpi && !job.live_session.empty()) {
    fmt::print(stderr, "[rank 0 {}] the session made at {} did not start, or was never shut down\n", host_name(),
               job.live_session);
    abort_job(code ? code : kExitUncaught);
  }
  job.end();
}

int run(int argc, char** argv, const std::function<int(int, char**)>& controller, const RunOptions& options) {
  if (auto code = interop::start_job(&argc, &argv, options)) return *code;
  ProcessPool::instance().remember_program({argv, argv + argc});
  const int code = run_controller(argc, argv, controller);
  interop::end_job(code);
  return code;
}

}  // namespace tutti
