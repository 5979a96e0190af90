#include <fmt/format.h>
#include <pybind11/stl.h>

#include "python/errors.h"
#include "python/object.h"
#include "python/py_job.h"
#include "python/py_session.h"
#include "python/where.h"
#include "tutti/interop/embed.h"

namespace tutti::python {
namespace {

DRef array_or_none(const py::object& object, const char* what) {
  if (object.is_none()) return {};
  const Ref* ref = as_ref(object);
  if (!ref) throw UsageError(fmt::format("{}: expected a DRef, got {}", what, std::string(py::str(py::type::handle_of(object)))));
  return ref->dref;
}

/// The very object that the caller gave, as in Disco.
py::object given_or(const py::object& given, Ref made) { return given.is_none() ? to_ref(std::move(made)) : given; }

/// Row-major. Each replay of a program reads the array itself: a copy would stay as it is.
Tensor to_source(PySession& session, const py::object& array) {
  return session.session().is_recording() ? to_tensor(array) : to_contiguous_tensor(array);
}

template <class Sequence>
List to_values(const Sequence& objects) {
  List values;
  for (py::handle object : objects) values.push_back(to_value(object));
  return values;
}

std::string repr(PySession& self) {
  const Session& s = self.session();
  return fmt::format("Session({}, {} worker{}, {} group{}, ccl={}, nodes={})", s.kind(), s.num_workers(),
                     s.num_workers() == 1 ? "" : "s", s.num_groups(), s.num_groups() == 1 ? "" : "s", s.ccl(), s.num_nodes());
}

void sync_all(PySession& s, std::optional<double> timeout, bool progress) {
  const Where where = here();
  const auto wait = [&] { without_gil([&] { s.session().sync_all(to_timeout(timeout), where); }); };
  if (!progress) return wait();
  const py::object bar = py::module_::import("tutti._show").attr("Bar")(py::cast(&s));
  const WhileWaiting show([&] { bar.attr("update")(); });
  try {
    wait();
  } catch (...) {
    bar.attr("leave")();
    throw;
  }
  bar.attr("close")();
}

py::tuple progress(PySession& self) {
  const Progress now = without_gil([&] { return self.session().progress(); });
  py::list workers;
  for (const auto& w : now.workers) workers.append(py::make_tuple(w.id, w.host, w.pid, w.finished, w.doing, w.seconds));
  return py::make_tuple(now.issued, now.finished, workers);
}

// collectives by what they take
template <auto Operation>
py::object reduction(PySession& s, const Ref& src, const py::object& dst, const std::string& op, bool in_group) {
  (s.session().*Operation)(src.dref, array_or_none(dst, "dst"), op, in_group, here());
  return dst;
}
template <auto Operation>
py::object exchange(PySession& s, const Ref& src, const py::object& dst, bool in_group) {
  (s.session().*Operation)(src.dref, array_or_none(dst, "dst"), in_group, here());
  return dst;
}
template <auto Operation>
py::object from_controller(PySession& s, const py::object& src, const py::object& dst, bool in_group) {
  const Where where = here();
  const DRef to = array_or_none(dst, "dst");
  const Tensor from = to_source(s, src);
  return given_or(dst, s.ref(without_gil([&] { return (s.session().*Operation)(from, to, in_group, where); })));
}
template <auto Operation>
void with_worker0(PySession& s, const Ref& from, const Ref& to, bool in_group) {
  (s.session().*Operation)(from.dref, to.dref, in_group, here());
}

void set_worker_program() {
  interop::set_worker_program(py::module_::import("tutti._worker").attr("command_line")().cast<std::vector<std::string>>());
}

void import_python_module(PySession& s, const std::string& name) {
  if (s.session().is_recording()) throw UsageError("import_python_module can't be recorded: call it before the recording");
  const Ref import = s.cached("runtime.disco._import_python_module", here());
  call(import, List{name, to_value(py::module_::import("sys").attr("path"))});
}

}  // namespace

const About* about_of(py::handle session) {
  return py::isinstance<PySession>(session) ? &session.cast<PySession&>().about() : nullptr;
}

void bind_session(py::module_& module) {
  using namespace py::literals;
  const auto none = py::none();

  py::class_<PySession> session(
      module, "Session",
      "The ranks of the MPI job, started by `mpirun -n N python3 -m tutti script.py`; without mpirun a job of one.\n\n"
      "Calls only issue commands and return, unless they are said to wait: wrong arguments are a UsageError (ValueError) at "
      "once, what goes\n"
      "wrong on a worker is a RemoteError of the next call that waits (sync_*, debug_*, shutdown). One thread at a time.\n"
      "num_workers: default all ranks. num_groups must divide it.");
  session
      .def(py::init([](std::optional<int> num_workers, int num_groups) {
             const Where where = here();
             start_job();
             return std::make_unique<PySession>(
                 [&] { return Session::create({.num_workers = num_workers.value_or(0), .num_groups = num_groups}, where); });
           }),
           "num_workers"_a = none, "num_groups"_a = 1)
      .def_property_readonly("num_workers", [](PySession& s) { return s.about().num_workers; })
      .def_property_readonly("num_groups", [](PySession& s) { return s.session().num_groups(); })
      .def_property_readonly(
          "kind", [](PySession& s) { return s.about().kind; }, "'thread', 'process' or 'mpi'")
      .def_property_readonly(
          "ccl", [](PySession& s) { return s.session().ccl(); }, "What init_ccl was told; 'auto' before.")
      .def_property_readonly(
          "is_recording", [](PySession& s) { return s.session().is_recording(); }, "Whether calls become the steps of a program.")
      .def_property_readonly("num_nodes", [](PySession& s) { return s.session().num_nodes(); })
      .def(
          "empty",
          [](PySession& s, const py::object& shape, const py::object& dtype, const py::object& device, bool worker0_only,
             bool in_group) {
            return s.ref(
                s.session().empty(to_shape(shape), to_dtype(dtype), to_device_or_none(device), worker0_only, in_group, here()));
          },
          "shape"_a, "dtype"_a, "device"_a = none, "worker0_only"_a = false, "in_group"_a = true,
          "An uninitialised array on every worker. worker0_only: on worker 0 only, with in_group on the first of every group; "
          "others hold None.")
      .def(
          "get_global_func",
          [](PySession& s, const std::string& name) { return to_function_ref(s.ref(s.session().get_global_func(name, here()))); },
          "name"_a, "Looked up on every worker; an unknown name is an error of the next call that waits.")
      .def(
          "_get_cached_method", [](PySession& s, const std::string& name) { return to_function_ref(s.cached(name, here())); },
          "name"_a)
      .def(
          "call_packed",
          [](PySession& s, const Ref& func, const py::args& args) {
            const List values = to_values(args);
            return s.ref(s.session().call(func.dref, values, here()));
          },
          "func"_a,
          "Calls the function in a register on every worker. Arguments: DRefs (each worker takes its own value), None, bool, "
          "int,\n"
          "float, str, bytes, Shape, DataType, Device, lists of these, arrays up to 64 KiB.")
      .def("import_python_module", &import_python_module, "module_name"_a,
           "`import module_name` on every worker, which looks also where the controller would (its sys.path); functions that it "
           "registers are there then.")
      .def(
          "load_vm_module",
          [](PySession& s, const std::string& path, const py::object& device) {
            return to_module_ref(s.ref(s.session().load_vm_module(path, to_device_or_none(device), here())));
          },
          "path"_a, "device"_a = none, "A shared library of tvm-ffi's C convention on every worker.")
      .def(
          "init_ccl",
          [](PySession& s, const std::string& ccl, const py::args& device_ids) {
            const bool is_list = device_ids.size() == 1 && py::isinstance<py::sequence>(device_ids[0]);
            const py::object ids = is_list ? py::object(device_ids[0]) : py::object(device_ids);
            s.session().init_ccl(ccl, to_shape(ids, "init_ccl: device_ids"), here());
          },
          "ccl"_a,
          "ccl: 'nccl' or 'rccl' (each worker gets a GPU: the planned one, or of device_ids), 'mpi' or 'local' (host memory), "
          "'auto' "
          "(GPUs if all workers have their own, else host memory).")
      .def(
          "copy_to_worker_0",
          [](PySession& s, const py::object& host_array, const py::object& remote_array) {
            const Where where = here();
            const DRef remote = array_or_none(remote_array, "copy_to_worker_0: remote_array");
            const Tensor host = to_source(s, host_array);
            return given_or(remote_array, s.ref(without_gil([&] { return s.session().copy_to_worker_0(host, remote, where); })));
          },
          "host_array"_a, "remote_array"_a = none,
          "Without remote_array: a new register, filled when this returns. With it: asynchronous, host_array must not change "
          "before a sync.")
      .def(
          "copy_from_worker_0",
          [](PySession& s, const py::object& host_array, const Ref& remote_array) {
            s.session().copy_from_worker_0(to_tensor(host_array, true), remote_array.dref, here());
          },
          "host_array"_a, "remote_array"_a, "Asynchronous: host_array is filled after the next sync of worker 0.")
      .def(
          "sync_worker_0",
          [](PySession& s, std::optional<double> timeout) {
            const Where where = here();
            without_gil([&] { s.session().sync_worker_0(to_timeout(timeout), where); });
          },
          "timeout"_a = none)
      .def(
          "_sync_worker",
          [](PySession& s, int worker_id, std::optional<double> timeout) {
            const Where where = here();
            check_worker(s.about(), worker_id);
            without_gil([&] { s.session().sync_worker(worker_id, to_timeout(timeout), where); });
          },
          "worker_id"_a, "timeout"_a = none, "Waits until the worker has done everything issued so far, and raises its errors.")
      .def("_sync_all", [](PySession& s) { sync_all(s, {}, false); })
      .def("sync_all", &sync_all, "timeout"_a = none, "progress"_a = false,
           "Waits for all workers and raises all errors, each once. timeout: seconds; after a TimeoutError calling again waits "
           "again.\n\n"
           "progress: a bar of tqdm's, of the commands finished of those issued, with the slowest worker.")
      .def("_progress", &progress)
      .def("broadcast", &from_controller<&Session::broadcast>, "src"_a, "dst"_a = none, "in_group"_a = true,
           "src is the controller's; every worker has it in dst, which is returned.")
      .def("broadcast_from_worker0", &with_worker0<&Session::broadcast_from_worker0>, "src"_a, "dst"_a, "in_group"_a = true,
           "dst everywhere = worker 0's src: equal counts.")
      .def("scatter", &from_controller<&Session::scatter>, "src"_a, "dst"_a = none, "in_group"_a = true,
           "in_group: src.shape[0] == workers of a group, and every group gets all of src; else == num_workers. Returns dst.")
      .def("scatter_from_worker0", &with_worker0<&Session::scatter_from_worker0>, "from_array"_a, "to_array"_a,
           "in_group"_a = true, "Rank r's to_array = the r-th of equal parts of worker 0's from_array.")
      .def("gather_to_worker0", &with_worker0<&Session::gather_to_worker0>, "from_array"_a, "to_array"_a, "in_group"_a = true,
           "Worker 0's to_array = everyone's from_array one after another.")
      .def("allreduce", &reduction<&Session::allreduce>, "src"_a, "dst"_a, "op"_a = "sum", "in_group"_a = true,
           "dst = op over everyone's src: sum, prod, min, max, avg. Returns dst.")
      .def("allgather", &exchange<&Session::allgather>, "src"_a, "dst"_a, "in_group"_a = true,
           "dst = everyone's src one after another. Returns dst.")
      .def("reduce_scatter", &reduction<&Session::reduce_scatter>, "src"_a, "dst"_a, "op"_a = "sum", "in_group"_a = true,
           "Rank r's dst = the r-th of equal parts of the reduced src. Returns dst.")
      .def("all_to_all", &exchange<&Session::all_to_all>, "src"_a, "dst"_a, "in_group"_a = true,
           "dst = the parts of everyone's src meant for this rank, by sender. Returns dst.")
      .def(
          "barrier", [](PySession& s, bool in_group) { s.session().barrier(in_group, here()); }, "in_group"_a = false,
          "No worker goes on before all have come here. The controller does not wait: sync_all.")
      .def(
          "on_preemption",
          [](PySession& s, const py::object& hook) {
            s.session().on_preemption([kept = keep(hook)] {
              const WithGil gil;
              if (!py::reinterpret_steal<py::object>(PyObject_CallNoArgs(kept.get()))) throw py::error_already_set();
            });
          },
          "hook"_a,
          "For jobs that may have to make room: after SIGUSR1 (or what TUTTI_PREEMPT_SIGNAL names) the session's next call runs "
          "hook() first, which\n"
          "may use the session to save what it wants. Then the session is shut down, and the call raises Preempted (exit code 75 "
          "if nobody\n"
          "catches it). What hook raises leaves the call instead, and the session lives on.")
      .def(
          "shutdown",
          [](PySession& s, std::optional<double> timeout) {
            const Where where = here();
            without_gil([&] { s.session().shutdown(to_timeout(timeout), where); });
          },
          "timeout"_a = none, "Waits for all workers, raises what is unreported, ends the session. Again: does nothing.")
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__",
           [](PySession& s, const py::object& type, const py::object&, const py::object&) {
             const Where where = here();
             if (!type.is_none() && s.is_lost()) return;
             try {
               const Timeout patience = type.is_none() ? Timeout() : s.patience();
               without_gil([&] { s.session().shutdown(patience, where); });
             } catch (const Error& error) {
               if (type.is_none()) throw;
               log("shutdown while another exception is under way", error);
             }
           })
      .def("__repr__", &repr);

  py::class_<PyThreaded, PySession>(module, "ThreadedSession",
                                    "Workers are threads of this process: no MPI, no launcher; any number at once.")
      .def(py::init([](int num_workers, int num_groups) {
             const Where where = here();
             return std::make_unique<PyThreaded>([&] { return ThreadedSession(num_workers, num_groups, where); });
           }),
           "num_workers"_a, "num_groups"_a = 1);
  py::class_<PyProcess, PySession>(
      module, "ProcessSession",
      "Workers are processes of this machine, which stay for the next session; inside an MPI job its ranks.\n\n"
      "entrypoint: a module that each worker imports first.")
      .def(py::init([](int num_workers, int num_groups, const py::object& entrypoint) {
             const Where where = here();
             if (py::module_::import("tutti._worker").attr("is_rank")().cast<bool>()) start_job();
             set_worker_program();
             auto made = std::make_unique<PyProcess>([&] { return ProcessSession(num_workers, num_groups, where); });
             if (!entrypoint.is_none() && !entrypoint.cast<std::string>().starts_with("tvm."))  // Disco's own worker programs
               import_python_module(*made, entrypoint.cast<std::string>());
             return made;
           }),
           "num_workers"_a, "num_groups"_a = 1, "entrypoint"_a = none);
  py::class_<PySocket, PySession>(module, "SocketSession",
                                  "Inside a job of that shape its ranks; else a UsageError that says how to launch one.")
      .def(py::init([](int num_nodes, int num_workers_per_node, int num_groups, const std::string& host, int port) {
             const Where where = here();
             start_job();
             return std::make_unique<PySocket>(
                 [&] { return SocketSession(num_nodes, num_workers_per_node, num_groups, host, port, where); });
           }),
           "num_nodes"_a, "num_workers_per_node"_a, "num_groups"_a, "host"_a, "port"_a);
}

}  // namespace tutti::python
