#include "python/gil.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <csignal>

#include "core/handle.h"
#include "tutti/interop/embed.h"

namespace tutti::python {
namespace {

struct KeptState {
  bool kept = false;
  ~KeptState() {
    if (!kept || !is_alive()) return;
    PyGILState_Ensure();
    PyGILState_Release(PyGILState_LOCKED);
    PyGILState_Release(PyGILState_UNLOCKED);  // the first one's: the thread's state goes
  }
};
thread_local KeptState kept_state;
thread_local PyThreadState* let_go_of = nullptr;
thread_local int waits = 0;
thread_local const std::function<void()>* while_waiting = nullptr;

/// PyGILState_Check, which says yes to everybody once there was a subinterpreter.
bool holds_gil() {
  auto* current = _PyThreadState_UncheckedGet();
  return current && current == PyGILState_GetThisThreadState();
}

/// faulthandler writes a thread's stack without the lock: also of a thread that never lets go of it.
void write_stacks_on_signal(interop::Interpreter& interpreter) {
  int number = SIGRTMIN;
  struct sigaction now {};
  while (number <= SIGRTMAX && (sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL)) ++number;
  detail::Fd file(memfd_create("tutti-stacks", MFD_CLOEXEC));
  if (number > SIGRTMAX || file.get() < 0 || fcntl(file.get(), F_SETFL, O_APPEND) != 0) return;
  try {
    py::module_::import("faulthandler").attr("register")(number, file.get(), py::arg("all_threads") = false);
    interpreter.stack_fd = file.release();
    interpreter.stack_signal = number;
  } catch (const py::error_already_set&) {  // hang reports do without
  }
}

}  // namespace

WithGil::WithGil() {
  if (!PyGILState_GetThisThreadState()) {
    or_stay(PyGILState_Ensure);
    kept_state.kept = true;
    PyEval_SaveThread();
  }
  state_ = or_stay(PyGILState_Ensure);
}
WithoutGil::~WithoutGil() {
  or_stay([&] { PyEval_RestoreThread(state_); });
}

WhileWaiting::WhileWaiting(std::function<void()> function)
    : function_(std::move(function)), outer_(std::exchange(while_waiting, &function_)) {}
WhileWaiting::~WhileWaiting() { while_waiting = outer_; }

std::shared_ptr<PyObject> keep(py::handle object) {
  return {object.inc_ref().ptr(), [](PyObject* kept) {
            if (!is_alive()) return;
            const WithGil gil;
            Py_DECREF(kept);
          }};
}

void set_interpreter_hooks(bool with_signals) {
  interop::Interpreter interpreter;
  interpreter.let_go = [] {
    if (waits++ == 0 && is_alive() && holds_gil()) let_go_of = PyEval_SaveThread();
  };
  interpreter.take = [] {
    if (--waits == 0 && let_go_of) or_stay([] { PyEval_RestoreThread(std::exchange(let_go_of, nullptr)); });
  };
  if (with_signals)
    interpreter.interrupted = [] {
      if (!is_alive()) return;
      const WithGil gil;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (while_waiting) (*while_waiting)();
    };
  write_stacks_on_signal(interpreter);
  interop::set_interpreter(interpreter);
}

}  // namespace tutti::python
