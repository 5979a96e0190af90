// tutti's exceptions as Python's. One that passes through a worker's Python function comes out of it as what it was,
// but for a UsageError, whose line in Python helps more.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <memory>
#include <string>

#include "tutti/error.h"

namespace tutti::python {

namespace py = pybind11;

std::string type_name(py::handle object);  ///< "int", "numpy.ndarray"
std::string said(py::handle str);          ///< as UTF-8, whatever it holds

/// What Python raised in a function that tutti called: it arrives as a failure with the exception's own kind and traceback, and
/// as the exception itself if Python is the one that called tutti.
class PythonError : public ModuleError {
 public:
  PythonError(const std::string& kind, const std::string& message, const std::string& traceback,
              std::shared_ptr<PyObject> exception)
      : ModuleError(kind, message, traceback), exception_(std::move(exception)) {}
  PyObject* exception() const { return exception_.get(); }

 private:
  std::shared_ptr<PyObject> exception_;
};
/// The exception that is set, as C++. With the lock.
[[noreturn]] void throw_python_error();

/// The C++ exception that a worker's Python function let pass, kept in `exception`; null: there is none.
std::exception_ptr original_of(py::handle exception);
/// Sets what is being handled as Python's exception.
void set_python_error();
/// For where nothing can be raised: on sys.stderr. A stream that is closed, full or gone makes no difference.
void log(const char* what, const std::exception& error) noexcept;
/// In a destructor: Ctrl-C is raised again where Python goes on, another exception is told of on sys.stderr, and ends here.
void put_off(py::error_already_set& error) noexcept;

/// Exceptions of tutti become Python's; in a worker each keeps the C++ one.
void bind_errors(py::module_& module);

}  // namespace tutti::python
