// libtutti_python.so: Python in the workers of a program that is not Python's. The library loads it when import_python_module
// asks.
#include <Python.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tutti/export.h"

namespace {

namespace fs = std::filesystem;

/// What is wrong, as Python says it.
std::string python_error() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject* text = value ? PyObject_Str(value) : nullptr;
  const char* message = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string said = std::string(type ? reinterpret_cast<PyTypeObject*>(type)->tp_name : "") + ": " + (message ? message : "?");
  PyErr_Clear();
  Py_XDECREF(text), Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
  return said;
}

/// The build tree's package, or the installed one.
std::string package_folder() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&python_error), &here) != 0)
    if (const auto built = fs::path(here.dli_fname).parent_path(); fs::exists(built / "tutti" / "__init__.py")) return built;
  return TUTTI_PACKAGE_FOLDER;
}

std::string initialize() {
  const char* given = std::getenv("TUTTI_PYTHON");
  if (given && access(given, X_OK) != 0) return std::string("TUTTI_PYTHON=") + given + " is no program";
  PyPreConfig before;  // the program's locale and environment are its own
  PyPreConfig_InitIsolatedConfig(&before);
  before.isolated = 0, before.use_environment = 1, before.utf8_mode = 1;
  if (PyStatus_Exception(Py_PreInitialize(&before)) != 0) return "it can't be pre-initialised";
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;  // the program's are its own
  config.parse_argv = 0;
  PyStatus status = PyConfig_SetBytesString(&config, &config.program_name,
                                            given ? given : TUTTI_PYTHON_PROGRAM);  // its packages, also a virtual environment's
  if (PyStatus_Exception(status) == 0) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status) != 0) return status.err_msg ? status.err_msg : "it can't be initialised";
  // nobody ends this interpreter, so that nobody would write what is left
  constexpr const char* kPrepare =
      "import sys, threading\n"
      "for stream in (sys.stdout, sys.stderr):\n"
      "    if stream is not None: stream.reconfigure(line_buffering=True)\n"
      "sys.tutti_embedded = True\n"
      "sys.path.insert(0, '')\n";
  std::string error;
  if (PyRun_SimpleString(kPrepare) != 0) error = "its first lines failed";
  PyObject* path = PySys_GetObject("path");
  PyObject* folder = PyUnicode_DecodeFSDefault(package_folder().c_str());
  if (!path || !folder || PyList_Append(path, folder) != 0) error = python_error();
  Py_XDECREF(folder);
  PyEval_SaveThread();
  return error;
}

}  // namespace

/// Empty: Python is there, and the package tutti imported. Not at the same time from two threads.
extern "C" TUTTI_API const char* tutti_start_python() {
  static std::string error;
  static bool is_broken = false;  // for good: what has begun can't be begun again
  if (is_broken) return error.c_str();
  if (!Py_IsInitialized() && (is_broken = !(error = initialize()).empty())) return error.c_str();
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* module = PyImport_ImportModule("tutti");
  error = module ? "" : python_error();
  Py_XDECREF(module);
  PyGILState_Release(state);
  return error.c_str();
}
