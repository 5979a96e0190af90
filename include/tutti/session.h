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

#include "tutti/value.h"
#include "tutti/where.h"
#include "tutti/worker.h"

namespace tutti {

namespace detail {
class Controller;
struct DRefState;
}  // namespace detail

using Timeout = std::optional<std::chrono::milliseconds>;  ///< nothing: no limit of the caller's

/// The controller's counted handle to a register that exists on every worker. Cheap to copy; the last copy frees the
/// register, without a message, on any thread.
class DRef {
 public:
  DRef() = default;
  explicit operator bool() const { return state_ != nullptr; }
  /// The value on one worker. Synchronising: raises that worker's errors.
  /// @throws UsageError (bad worker id; functions, modules and opaque objects travel from worker 0 only), RemoteError,
  ///         TimeoutError, TransportError
  Value debug_get_from_remote(int worker_id, Timeout timeout = {}, Where where = Where::current()) const;
  /// Sets the value on one worker: in place when it is a tensor of the same count and dtype, else replaced.
  void debug_copy_from(int worker_id, const Value& value, Where where = Where::current()) const;
  operator Value() const;  // NOLINT: a DRef is an argument like any value

 protected:
  friend class detail::Controller;
  friend class Session;
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
class DPackedFunc : public DRef {
 public:
  DPackedFunc() = default;
  explicit DPackedFunc(DRef ref) : DRef(std::move(ref)) {}
  DRef operator()(Where where = Where::current()) const { return call({}, where); }
  template <class... A>
  DRef operator()(LocatedValue first, A&&... rest) const {
    return call({std::move(first.value), Value(std::forward<A>(rest))...}, first.where);
  }

 private:
  DRef call(const List& args, Where where) const;
};

/// A module that load_vm_module has loaded on every worker.
class DModule : public DRef {
 public:
  DModule() = default;
  explicit DModule(DRef ref) : DRef(std::move(ref)) {}
  /// A missing function is an error of the next synchronising call.
  DPackedFunc operator[](LocatedValue name) const;
};

/// A function and the line that calls it.
struct CallSite {
  CallSite(const DRef& function, Where where = Where::current())  // NOLINT: converts on purpose
      : function(function), where(where) {}
  const DRef& function;
  Where where;
};

struct SessionOptions {
  int num_workers = 0;  ///< 0: all ranks of the job
  int num_groups = 1;   ///< must divide num_workers
  std::chrono::milliseconds start_timeout{30000};
};

/// One controller and its workers. A cheap handle; the last copy shuts the session down. Calls must not overlap in time.
class Session {
 public:
  /// The ranks of the MPI job that tutti::run has started; rank 0 only.
  /// @throws UsageError  no tutti::run, more workers than ranks, another MPI session is live (says where it was made)
  static Session create(SessionOptions options = {}, Where where = Where::current());

  int num_workers() const;
  int num_groups() const;
  const std::string& kind() const;  ///< "thread", "process" or "mpi"

  DRef empty(Shape shape, DType dtype, std::optional<Device> device = {}, bool worker0_only = false, bool in_group = true,
             Where where = Where::current());
  /// Looked up on every worker; an unknown name is an error of the next synchronising call.
  DPackedFunc get_global_func(std::string_view name, Where where = Where::current());
  template <class... A>
  DRef call_packed(CallSite func, A&&... args) {
    return call(func.function, {Value(std::forward<A>(args))...}, func.where);
  }
  DRef call(const DRef& func, const List& args, Where where = Where::current());

  /// A shared library on every worker (tutti/abi.h); `path` as each worker's process sees it. One load per process and file. If
  /// it exports vm_load_executable, that is called, and vm_initialization on what it returns: the module is that object.
  /// device: for vm_initialization; default: the worker's. What is wrong is an error of the next synchronising call.
  DModule load_vm_module(std::string_view path, std::optional<Device> device = {}, Where where = Where::current());

  /// `ccl`: "mpi", "local" or "auto" (host memory). Device ids are ignored by these.
  void init_ccl(std::string_view ccl, const std::vector<int64_t>& device_ids = {}, Where where = Where::current());

  /// Without remote_array: a new register, filled at call time. With it: asynchronous, host_array must not change
  /// before a sync (TUTTI_CHECK_HOST_ARRAYS=1 checks). Shapes and dtypes as in Tensor::copy_from.
  DRef copy_to_worker_0(const Tensor& host_array, const DRef& remote_array = {}, Where where = Where::current());
  /// Asynchronous: host_array is filled after the next sync of worker 0.
  void copy_from_worker_0(const Tensor& host_array, const DRef& remote_array, Where where = Where::current());

  void sync_worker(int worker_id, Timeout timeout = {}, Where where = Where::current());
  void sync_worker_0(Timeout timeout = {}, Where where = Where::current()) { sync_worker(0, timeout, where); }
  void sync_all(Timeout timeout = {}, Where where = Where::current());

  /// src is on the controller; every worker (of every group) has it in dst. Returns dst, made if absent.
  DRef broadcast(const Tensor& src, const DRef& dst = {}, bool in_group = true, Where where = Where::current());
  void broadcast_from_worker0(const DRef& src, const DRef& dst, bool in_group = true, Where where = Where::current());
  /// in_group: shape[0] == group size and every group gets all of src; else shape[0] == num_workers. Returns dst.
  DRef scatter(const Tensor& src, const DRef& dst = {}, bool in_group = true, Where where = Where::current());
  void scatter_from_worker0(const DRef& from_array, const DRef& to_array, bool in_group = true,
                            Where where = Where::current());
  void gather_to_worker0(const DRef& from_array, const DRef& to_array, bool in_group = true,
                         Where where = Where::current());
  DRef allreduce(const DRef& src, const DRef& dst, std::string_view op = "sum", bool in_group = true,
                 Where where = Where::current());
  DRef allgather(const DRef& src, const DRef& dst, bool in_group = true, Where where = Where::current());
  DRef reduce_scatter(const DRef& src, const DRef& dst, std::string_view op = "sum", bool in_group = true,
                      Where where = Where::current());
  DRef all_to_all(const DRef& src, const DRef& dst, bool in_group = true, Where where = Where::current());
  void barrier(bool in_group = false, Where where = Where::current());

  /// Waits for all workers, raises what is unreported (RemoteError), ends the session. Again: does nothing.
  void shutdown(Timeout timeout = {}, Where where = Where::current());

  explicit operator bool() const { return controller_ != nullptr; }

 protected:
  Session() = default;
  explicit Session(std::shared_ptr<detail::Controller> controller) : controller_(std::move(controller)) {}
  detail::Controller& controller() const;
  DRef call_builtin(const char* name, const List& args, Where where);
  std::shared_ptr<detail::Controller> controller_;
};

/// Workers are threads of this process: no MPI, no launcher; any number at once.
class ThreadedSession : public Session {
 public:
  explicit ThreadedSession(int num_workers, int num_groups = 1, Where where = Where::current());
};

/// Worker processes on this machine: the program executes itself again and tutti::run serves in them. They stay for the
/// next session. Inside an MPI job it takes the job's ranks.
/// @throws UsageError  the program does not use tutti::run
class ProcessSession : public Session {
 public:
  explicit ProcessSession(int num_workers, int num_groups = 1, Where where = Where::current());
};

/// Accepted for drop-in use inside a job of that shape (nodes x workers per node); host and port are ignored.
/// @throws UsageError  the job has another shape, or there is none: says how to launch one
class SocketSession : public Session {
 public:
  SocketSession(int num_nodes, int num_workers_per_node, int num_groups, std::string_view host, int port,
                Where where = Where::current());
};

/// Runs `controller` on rank 0 and serves sessions on all other ranks, under mpirun, srun or alone (a one-rank job).
/// Call it first in main and return its value: the controller's code; 1 after an uncaught error; 99 set-up error.
int run(int argc, char** argv, const std::function<int(int, char**)>& controller);

}  // namespace tutti
