#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/export.h"
#include "tutti/value.h"
#include "tutti/where.h"
#include "tutti/worker.h"

namespace tutti {

namespace detail {
class Controller;
struct DRefState;
}  // namespace detail
class Recording;
namespace distributed {
struct Access;
}

using Timeout = std::optional<std::chrono::milliseconds>;  ///< nothing: no limit of the caller's

/// The controller's counted handle to a register that exists on every worker. Cheap to copy; the last copy frees the
/// register, without a message, on any thread.
class TUTTI_API DRef {
 public:
  DRef() = default;
  explicit operator bool() const { return state_ != nullptr; }
  int64_t reg_id() const;  ///< the register's number in its session.  @throws UsageError  the DRef is empty
  /// The value on one worker. Synchronising: raises that worker's errors.
  /// @throws UsageError (bad worker id; functions, modules and opaque objects without content travel from worker 0 only),
  ///         RemoteError, TimeoutError, TransportError
  Value debug_get_from_remote(int worker_id, Timeout timeout = {}, Where where = Where::current()) const;
  /// Sets the value on one worker: in place when it is a tensor of the same count and dtype, else replaced.
  void debug_copy_from(int worker_id, const Value& value, Timeout timeout = {}, Where where = Where::current()) const;
  operator Value() const;  // NOLINT: a DRef is an argument like any value

 protected:
  friend class detail::Controller;
  friend class Session;
  friend struct distributed::Access;
  explicit DRef(std::shared_ptr<detail::DRefState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::DRefState> state_;
};

/// A value and the line that wrote it (a parameter pack leaves no room for a defaulted Where).
struct LocatedValue {
  template <class T>
  LocatedValue(T&& v, Where where = Where::current())  // NOLINT: converts on purpose
      : value(std::forward<T>(v)), where(where) {}
  Value value;
  Where where;
};

/// A function in a register; calling it calls it on every worker.
class TUTTI_API DPackedFunc : public DRef {
 public:
  DPackedFunc() = default;
  explicit DPackedFunc(DRef ref) : DRef(std::move(ref)) {}
  DRef operator()(Where where = Where::current()) const { return call({}, where); }
  template <class... A>
  DRef operator()(LocatedValue first, A&&... rest) const {
    const Value args[] = {std::move(first.value), Value(std::forward<A>(rest))...};
    return call(args, first.where);
  }
  DRef call(Args args, Where where = Where::current()) const;  ///< with arguments that are counted at run time
};

/// A module that load_vm_module has loaded on every worker.
class TUTTI_API DModule : public DRef {
 public:
  DModule() = default;
  explicit DModule(DRef ref) : DRef(std::move(ref)) {}
  /// A missing function is an error of the next synchronising call.
  DPackedFunc operator[](const LocatedValue& name) const;
  /// Names of the library's functions, as worker 0 has it. Synchronising. None of a module that vm_load_executable has made.
  std::vector<std::string> functions(Timeout timeout = {}, Where where = Where::current()) const;
};

/// A function and the line that calls it.
struct CallSite {
  CallSite(const DRef& function, Where where = Where::current())  // NOLINT: converts on purpose
      : function(function), where(where) {}
  const DRef& function;
  Where where;
};

struct SessionOptions {
  int num_workers = 0;  ///< 0: all ranks of the job; threads and processes must be counted
  int num_groups = 1;   ///< must divide num_workers
  std::chrono::milliseconds start_timeout{30000};
  Timeout timeout = {};  ///< a wait of this length writes a hang report and goes on; default TUTTI_TIMEOUT seconds, or 600
};

/// Where a worker runs.
struct Place {
  std::string host;
  std::vector<int> cpus;     ///< that it may use
  std::vector<int> memory;   ///< NUMA nodes that its memory comes from first; empty: those beside the CPUs
  bool is_bound = false;     ///< tutti has put it there; else it was left where it was
  std::string gpu, gpu_pci;  ///< chosen for it: "cuda0", "0000:41:00.0"; empty: none
  std::string nic;           ///< the network card nearest to that, "mlx5_0"; empty: none
  std::string why;  ///< of all this, in words; empty: nobody has looked at the machine (threads, processes, TUTTI_BIND=none, or,
                    ///< unless TUTTI_BIND is set, a program that has called MPI_Init itself)
};

/// How far a session is.
struct Progress {
  struct Worker {
    int id = -1;
    std::string host;
    int64_t pid = 0;
    uint64_t finished = 0;  ///< commands
    std::string doing;      ///< a function, a collective; empty: waits for a command
    double seconds = 0;     ///< how long
  };
  uint64_t issued = 0;          ///< commands
  uint64_t finished = 0;        ///< by all of `workers`
  std::vector<Worker> workers;  ///< those whose nodes have answered; none once the session is over
};

/// One controller and its workers. A cheap handle; the last copy shuts the session down. Calls must not overlap in time, and
/// worker functions can't make any.
///
/// Every call that is not said to be synchronising only issues a command and returns: wrong arguments are a UsageError at once
/// (nothing was sent), what goes wrong on a worker is a RemoteError of the next synchronising call (sync_*, debug_*, shutdown).
/// Commands run in the order of the calls, on every worker. Worker 0 is a thread of the controller's process.
///
/// "Counts" below are numbers of elements; shapes may differ. src may be dst. dtypes must agree. `in_group`: each group by
/// itself, its first worker in the place of worker 0; else all workers together.
class TUTTI_API Session {
 public:
  /// The ranks of the MPI job that tutti::run has started; rank 0 only.
  /// @throws UsageError  no tutti::run, more workers than ranks, another MPI session is live (says where it was made)
  static Session create(SessionOptions options = {}, Where where = Where::current());

  int num_workers() const;
  int num_groups() const;
  int num_nodes() const;
  const std::string& kind() const;  ///< "thread", "process" or "mpi"
  std::string ccl() const;          ///< what init_ccl was told; "auto" before
  bool timed_out() const;           ///< the last wait was given up, at its limit or by an interrupt: a worker may be stuck
  bool lost() const;                ///< a worker or MPI was lost, and a call has thrown the TransportError: the session is over
  Progress progress() const;        ///< any thread, also during a call of another
  std::vector<Place> places(Timeout timeout = {}, Where where = Where::current()) const;  ///< by worker. Synchronising

  /// An uninitialised array of this shape on every worker. device: default the worker's. worker0_only: on worker 0 only, with
  /// in_group on the first worker of every group; the others hold None.
  /// @throws UsageError  a negative extent, more than 2^63 bytes
  DRef empty(Shape shape, DType dtype, std::optional<Device> device = {}, bool worker0_only = false, bool in_group = true,
             Where where = Where::current());
  /// Looked up on every worker; an unknown name is an error of the next synchronising call.
  DPackedFunc get_global_func(std::string_view name, Where where = Where::current());
  /// Calls the function in `func` on every worker; the result's register. Arguments: DRefs (each worker takes its own value),
  /// None (nullptr), bool, numbers, strings, Bytes, Shape, DType, Device, List of these, host tensors up to 64 KiB.
  /// @throws UsageError  an argument that can't travel: position and type
  template <class... A>
  DRef call_packed(CallSite func, A&&... args) {
    return call(func.function, {Value(std::forward<A>(args))...}, func.where);
  }
  DRef call(const DRef& func, const List& args, Where where = Where::current());

  /// A shared library on every worker (tutti/abi.h); `path` as each worker's process sees it. One load per process and file. If
  /// it exports vm_load_executable, that is called, and vm_initialization on what it returns: the module is that object.
  /// device: for vm_initialization; default: the worker's. What is wrong is an error of the next synchronising call.
  DModule load_vm_module(std::string_view path, std::optional<Device> device = {}, Where where = Where::current());

  /// Python's `import module_name` on every worker, whose functions are registered then. Workers of a program that is not
  /// Python's get an interpreter: that of TUTTI_PYTHON (of the version tutti was built for), by default the one it was built for;
  /// it searches PYTHONPATH and the working directory.
  void import_python_module(std::string_view module_name, Where where = Where::current());

  /// Collective back ends. "nccl", "rccl": each worker gets a GPU, the one planned for it or those of `device_ids` (one for each
  /// worker of a node), and device memory moves by NCCL or RCCL. "mpi", "local" (one node): host memory; device ids are ignored.
  /// "auto": nccl or rccl if all workers have the library and a GPU of their own, else host memory; the builtin
  /// "runtime.disco.ccl" says which. Shapes and arrays that name no device go to the worker's GPU from then on.
  void init_ccl(std::string_view ccl, const std::vector<int64_t>& device_ids = {}, Where where = Where::current());

  /// Without remote_array: a new register, filled at call time. With it: asynchronous, host_array must not change
  /// before a sync (TUTTI_CHECK_HOST_ARRAYS=1 checks). Shapes and dtypes as in Tensor::copy_from.
  DRef copy_to_worker_0(const Tensor& host_array, const DRef& remote_array = {}, Where where = Where::current());
  /// Asynchronous: host_array is filled after the next sync of worker 0.
  void copy_from_worker_0(const Tensor& host_array, const DRef& remote_array, Where where = Where::current());

  /// Waits until the worker has done everything issued so far. Raises its unreported errors, and those of others that have come.
  /// @throws RemoteError, TimeoutError (calling again waits again), TransportError (a worker is lost: the session is over)
  void sync_worker(int worker_id, Timeout timeout = {}, Where where = Where::current());
  void sync_worker_0(Timeout timeout = {}, Where where = Where::current()) { sync_worker(0, timeout, where); }
  /// Waits for all workers, raises all unreported errors, each once. One operation, however many workers.
  void sync_all(Timeout timeout = {}, Where where = Where::current());

  /// src is on the controller; every worker (of every group) has it in dst. Returns dst, made if absent. src may be changed on
  /// return: up to 256 KiB of it are copied; a larger one is read where it lies, and the call waits until all workers are done
  /// with it.
  DRef broadcast(const Tensor& src, const DRef& dst = {}, bool in_group = true, Where where = Where::current());
  /// dst everywhere = worker 0's src: equal counts. Elsewhere src is not read and may be None.
  void broadcast_from_worker0(const DRef& src, const DRef& dst, bool in_group = true, Where where = Where::current());
  /// in_group: shape[0] == group size and every group gets all of src; else shape[0] == num_workers. Returns dst. src: as in
  /// broadcast.
  DRef scatter(const Tensor& src, const DRef& dst = {}, bool in_group = true, Where where = Where::current());
  /// to_array on rank r = the r-th of equal parts of worker 0's from_array: count(from) = members * count(to).
  void scatter_from_worker0(const DRef& from_array, const DRef& to_array, bool in_group = true, Where where = Where::current());
  /// Worker 0's to_array = everyone's from_array one after another: count(to) = members * count(from). Elsewhere to_array may be
  /// None.
  void gather_to_worker0(const DRef& from_array, const DRef& to_array, bool in_group = true, Where where = Where::current());
  /// dst = op over everyone's src: equal counts. op: "sum", "prod", "min", "max", "avg" (the sum divided by the members; integers
  /// truncate). bool: min, max; complex: sum, prod, avg; float8: none. Order, rounding, NaN: worker.h. Returns dst.
  DRef allreduce(const DRef& src, const DRef& dst, std::string_view op = "sum", bool in_group = true,
                 Where where = Where::current());
  /// dst = everyone's src one after another: count(dst) = members * count(src). Returns dst.
  DRef allgather(const DRef& src, const DRef& dst, bool in_group = true, Where where = Where::current());
  /// dst on rank r = the r-th of equal parts of the reduced src: count(src) = members * count(dst). Returns dst.
  DRef reduce_scatter(const DRef& src, const DRef& dst, std::string_view op = "sum", bool in_group = true,
                      Where where = Where::current());
  /// dst = the parts of everyone's src meant for this rank, by sender: equal counts that the members divide. Returns dst.
  DRef all_to_all(const DRef& src, const DRef& dst, bool in_group = true, Where where = Where::current());
  /// No worker goes on before all have come here; of all workers unless told otherwise. The controller does not wait: sync_all.
  void barrier(bool in_group = false, Where where = Where::current());

  /// From here to Recording::finish() nothing is sent: the calls become the steps of a program, which replays them by one command
  /// (tutti/program.h). Functions and modules are looked up at once. `name`: for messages; default: this line.
  /// @throws UsageError  another recording is under way; a call that waits, or changes the session, while this one is
  Recording record(std::string_view name = {}, Where where = Where::current());
  bool is_recording() const;

  /// Waits for all workers, raises what is unreported (RemoteError), ends the session. Again, or of an empty one: does nothing.
  void shutdown(Timeout timeout = {}, Where where = Where::current());

  /// For jobs that may have to make room. After SIGUSR1 (or what TUTTI_PREEMPT_SIGNAL names) the next call on the session runs
  /// `hook` first, in its own thread: it may use the session, to save what has to be saved, say. Then the session is shut down
  /// and the call throws Preempted; nothing of it has been sent. What the hook throws leaves the call instead, and the session
  /// lives on. Without a hook the signal does nothing. Only under tutti::run; other programs' signals are their own.
  void on_preemption(std::function<void()> hook);

  explicit operator bool() const { return controller_ != nullptr; }

 protected:
  friend struct distributed::Access;
  Session() = default;
  explicit Session(std::shared_ptr<detail::Controller> controller) : controller_(std::move(controller)) {}
  detail::Controller& controller() const;
  DRef call_builtin(const char* name, const List& args, Where where);
  std::shared_ptr<detail::Controller> controller_;
};

/// Workers are threads of this process: no MPI, no launcher; any number at once. They share what the process has: a registered
/// function is one object that all of them call at the same time.
class TUTTI_API ThreadedSession : public Session {
 public:
  explicit ThreadedSession(int num_workers, int num_groups = 1, Where where = Where::current());
  explicit ThreadedSession(const SessionOptions& options, Where where = Where::current());
};

/// Worker processes on this machine: the program executes itself again and tutti::run serves in them. They stay for the
/// next session. When tutti::run or the program ends, they end as ranks do: main returns, so that output is flushed. Inside an
/// MPI job it takes the job's ranks.
/// @throws UsageError  the program does not use tutti::run
class TUTTI_API ProcessSession : public Session {
 public:
  explicit ProcessSession(int num_workers, int num_groups = 1, Where where = Where::current());
  explicit ProcessSession(const SessionOptions& options, Where where = Where::current());
};

/// Accepted for drop-in use inside a job of that shape (nodes x workers per node); host and port are ignored.
/// @throws UsageError  the job has another shape, or there is none: says how to launch one
class TUTTI_API SocketSession : public Session {
 public:
  SocketSession(int num_nodes, int num_workers_per_node, int num_groups, std::string_view host, int port,
                Where where = Where::current());
};

struct RunOptions {
  /// How ranks are put on GPUs and cores: "gpu", "cores", "user", "none" as for TUTTI_BIND, which goes first (docs/cluster.md);
  /// "": as if it were not set.
  std::string bind;
};

/// Runs `controller` on rank 0 and serves sessions on all other ranks, under mpirun, srun or alone (a one-rank job).
/// Call it first in main and return its value: the controller's code; 1 after an uncaught error; 99 set-up error. `options` must
/// be the same on all ranks.
TUTTI_API int run(int argc, char** argv, const std::function<int(int, char**)>& controller, const RunOptions& options = {});

}  // namespace tutti
