#include <string>
#include <string_view>

#include "python/gil.h"
#include "python/where.h"

namespace tutti::python {
namespace {

/// This package's own files: the caller is further out. The benchmark calls as a user does.
bool is_ours(std::string_view file) {
  static const auto* package =
      new std::string(py::str(py::module_::import("tutti").attr("__path__")[py::int_(0)]).cast<std::string>() + "/");
  return file.starts_with(*package) && !file.ends_with("/bench.py");
}

}  // namespace

Where here() {
  // of a loop that calls again and again, the line is looked up once; the code object is kept, so that its address is no other's
  static PyCodeObject* last_code = nullptr;
  static int last_instruction = -1;
  static Where last;
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return {"", 0};
  py::object held = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(frame));
  for (;;) {
    auto* code = PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(held.ptr()));
    const int instruction = PyFrame_GetLasti(reinterpret_cast<PyFrameObject*>(held.ptr()));
    if (code == last_code && instruction == last_instruction) {
      Py_DECREF(code);
      return last;
    }
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    if (!file) {
      PyErr_Clear();
      file = "?";
    }
    PyFrameObject* outer = is_ours(file) ? PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(held.ptr())) : nullptr;
    if (!outer) {
      const int line = PyFrame_GetLineNumber(reinterpret_cast<PyFrameObject*>(held.ptr()));
      Py_XDECREF(last_code);
      last_code = code;
      last_instruction = instruction;
      return last = {file, static_cast<uint32_t>(line > 0 ? line : 0)};
    }
    Py_DECREF(code);
    held = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(outer));
  }
}

}  // namespace tutti::python
