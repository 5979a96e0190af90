#include "python/errors.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <cstring>

#include "python/gil.h"
#include "tutti/error.h"
#include "tutti/worker.h"

namespace tutti::python {
namespace {

constexpr const char* kOriginal = "_tutti_original";

py::object errors() { return py::module_::import("tutti._errors"); }

py::object failure_object(const WorkerFailure& failure) {
  return errors().attr("WorkerFailure")(failure.worker, failure.seq, failure.host, failure.pid, failure.kind, failure.message,
                                        failure.function, failure.issued_at, failure.traceback);
}

void raise(py::object exception, const std::exception_ptr& original) {
  if (worker::active()) {
    auto* kept = new std::exception_ptr(original);
    py::setattr(exception, kOriginal, py::capsule(kept, kOriginal, [](PyObject* capsule) {
                  delete static_cast<std::exception_ptr*>(PyCapsule_GetPointer(capsule, kOriginal));
                }));
  }
  PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
}

/// A message may quote what a file, or a name, has: bytes that are not UTF-8 are shown as \x..
py::object text_of(const char* message) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(message, static_cast<py::ssize_t>(std::strlen(message)), "backslashreplace"));
}

void translate(std::exception_ptr thrown) {  // NOLINT: by value, for pybind11
  if (!thrown) return;
  try {
    std::rethrow_exception(thrown);
  } catch (const PythonError& error) {
    PyErr_SetObject(py::type::handle_of(error.exception()).ptr(), error.exception());
  } catch (const RemoteError& error) {
    py::list failures;
    for (const WorkerFailure& failure : error.failures()) failures.append(failure_object(failure));
    py::object exception = errors().attr("RemoteError")(text_of(error.what()));
    exception.attr("failures") = failures;
    exception.attr("workers") = py::cast(error.workers());
    raise(exception, thrown);
  } catch (const UsageError& error) {
    raise(errors().attr("UsageError")(text_of(error.what())), thrown);
  } catch (const TimeoutError& error) {
    raise(errors().attr("TimeoutError")(text_of(error.what())), thrown);
  } catch (const Preempted& error) {
    raise(errors().attr("Preempted")(text_of(error.what())), thrown);
  } catch (const TransportError& error) {
    raise(errors().attr("TransportError")(text_of(error.what())), thrown);
  } catch (const SystemError& error) {
    raise(errors().attr("SystemError")(text_of(error.what())), thrown);
  } catch (const ModuleError& error) {
    raise(errors().attr("ModuleError")(fmt::format("{}: {}", error.kind(), error.what())), thrown);
  } catch (const Error& error) {
    raise(errors().attr("Error")(text_of(error.what())), thrown);
  }
}

}  // namespace

std::string type_name(py::handle object) {
  const auto type = py::type::handle_of(object);
  const auto module = py::str(type.attr("__module__")).cast<std::string>();
  const auto name = py::str(type.attr("__qualname__")).cast<std::string>();
  return module == "builtins" ? name : module + "." + name;
}

std::string said(py::handle str) {
  const auto bytes = py::reinterpret_steal<py::bytes>(PyUnicode_AsEncodedString(str.ptr(), "utf-8", "backslashreplace"));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

void throw_python_error() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  const auto exception = py::reinterpret_steal<py::object>(value);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  if (std::exception_ptr original = original_of(exception)) try {  // it came from tutti, and went through
      std::rethrow_exception(original);
    } catch (const UsageError&) {  // its line in Python is what helps
    }
  const auto text_or = [](const char* otherwise, auto text) -> std::string {
    try {
      return said(text());
    } catch (const py::error_already_set& error) {
      return otherwise;
    }
  };
  const std::string message = text_or("(its message can't be had)", [&] { return py::str(exception); });
  const std::string traceback = text_or("", [&] { return py::module_::import("tutti._errors").attr("traceback_of")(exception); });
  throw PythonError(type_name(exception), message, traceback, keep(exception));
}

void set_python_error() {
  try {
    try {
      throw;
    } catch (py::error_already_set& error) {
      error.restore();
    } catch (const py::builtin_exception& error) {
      error.set_error();
    } catch (...) {
      translate(std::current_exception());
    }
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void log(const char* what, const std::exception& error) noexcept try {
  const py::error_scope kept;
  const auto stream = py::reinterpret_borrow<py::object>(PySys_GetObject("stderr"));
  if (!stream || stream.is_none()) return;  // descriptor 2 may be another file by now
  const std::string text = fmt::format("[tutti] {}: {}\n", what, error.what());
  const auto line = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
  if (!line || PyFile_WriteObject(line.ptr(), stream.ptr(), Py_PRINT_RAW) != 0) throw py::error_already_set();
} catch (py::error_already_set& raised) {
  if (raised.matches(PyExc_KeyboardInterrupt)) put_off(raised);
} catch (...) {
}

void put_off(py::error_already_set& error) noexcept {
  if (error.matches(PyExc_KeyboardInterrupt)) PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), PyExc_KeyboardInterrupt);
  else error.discard_as_unraisable("a session that went out of scope");
}

std::exception_ptr original_of(py::handle exception) {
  const py::object capsule = py::getattr(exception, kOriginal, py::none());
  if (!PyCapsule_IsValid(capsule.ptr(), kOriginal)) return nullptr;
  return *static_cast<std::exception_ptr*>(PyCapsule_GetPointer(capsule.ptr(), kOriginal));
}

void bind_errors(py::module_& /*module*/) { py::register_exception_translator(translate); }

}  // namespace tutti::python
