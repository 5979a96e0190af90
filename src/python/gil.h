// The interpreter's lock, for threads that Python knows nothing of.
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <functional>
#include <memory>

namespace tutti::python {

namespace py = pybind11;

#if PY_VERSION_HEX < 0x030D0000
inline int Py_IsFinalizing() { return _Py_IsFinalizing(); }  // the public name came with Python 3.13
#endif
/// Whether the interpreter can be used. Not once it ends: what is left of its objects then stays.
inline bool is_alive() { return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0; }

/// `f` takes the lock. An interpreter that ends unwinds the threads that ask for it, which C++ can't have: they stay until the
/// process is gone.
template <class F>
auto or_stay(F f) {
  try {
    return f();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

/// Holds the lock. A thread's first one makes its Python state, which stays until the thread ends.
class WithGil {
 public:
  WithGil();
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

/// Lets go of the lock, as long as this lives; of a thread that holds it.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};
template <class F>
auto without_gil(F&& f) {
  const WithoutGil released;
  return f();
}

/// As long as this lives, its function is called every 50 ms of a wait of this thread, with the lock. What it throws ends the
/// wait.
class WhileWaiting {
 public:
  explicit WhileWaiting(std::function<void()> function);
  ~WhileWaiting();
  WhileWaiting(const WhileWaiting&) = delete;
  WhileWaiting& operator=(const WhileWaiting&) = delete;

 private:
  std::function<void()> function_;
  const std::function<void()>* outer_;
};

/// A counted reference that any thread may drop, with or without the lock.
std::shared_ptr<PyObject> keep(py::handle object);

void set_interpreter_hooks(bool with_signals);  ///< tutti/interop/embed.h; a program that is not Python's keeps its signals

}  // namespace tutti::python
