#include "python/py_job.h"
#include "python/errors.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>

#include "python/py_session.h"
#include "tutti/interop/embed.h"

namespace tutti::python {
namespace {

enum class JobIs { kNone, kRun, kOurs, kOver } job_is = JobIs::kNone;  // kRun: python3 -m tutti began it and ends it

/// As main() gets them.
std::vector<char*> pointers(std::vector<std::string>& arguments) {
  std::vector<char*> raw(arguments.size() + 1);
  std::ranges::transform(arguments, raw.begin(), [](std::string& argument) { return argument.data(); });
  return raw;
}

}  // namespace

void start_job() {
  if (job_is != JobIs::kNone) return;
  auto argv = py::module_::import("sys").attr("argv").cast<std::vector<std::string>>();
  std::vector<char*> raw = pointers(argv);
  int argc = static_cast<int>(argv.size());
  char** arguments = raw.data();
  const auto code = without_gil([&] { return interop::start_job(&argc, &arguments); });
  job_is = code ? JobIs::kOver : JobIs::kOurs;
  if (code) {
    PyErr_SetObject(PyExc_SystemExit, py::int_(*code).ptr());
    throw py::error_already_set();
  }
}

void bind_job(py::module_& module) {
  static const pid_t owner = getpid();
  module.def("_end", [] {  // before the interpreter ends
    bool& all_is_well = PySession::all_is_well();
    if (getpid() != owner) return true;  // a fork of the process that this is about
    for (PySession* s : std::vector<PySession*>(PySession::live().begin(), PySession::live().end())) {
      if (s->is_lost()) {
        if (job_is == JobIs::kNone) s->end();  // worker 0 may need the lock to end; a job's end sees to its ranks
        continue;
      }
      try {
        const Timeout patience = s->patience();
        without_gil([&] { s->session().shutdown(patience); });
      } catch (const std::exception& error) {  // also Ctrl-C
        all_is_well = false;
        log("end of a session that was not shut down", error);
        if (s->session().timed_out()) s->end();  // a stuck worker: ends the process, or the job
      }
    }
    PySession::close_parked();
    if (job_is != JobIs::kOurs) return all_is_well;
    job_is = JobIs::kOver;
    without_gil([&] { interop::end_job(all_is_well ? 0 : 1); });
    return all_is_well;
  });
  module.def("_run", [](std::vector<std::string> argv, const py::object& controller) {
    std::vector<char*> raw = pointers(argv);
    job_is = JobIs::kRun;
    return without_gil([&] {
      return run(static_cast<int>(argv.size()), raw.data(), [&](int, char**) {
        const WithGil gil;
        return controller().cast<int>();
      });
    });
  });
}

}  // namespace tutti::python
