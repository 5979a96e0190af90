#include <string_view>

#include "python/gil.h"
#include "python/refs.h"

namespace tutti::python {
namespace {

/// This package's own files: the caller is further out. A source tree and an installation end alike.
bool is_ours(std::string_view file) {
  const size_t slash = file.rfind('/');
  return slash != std::string_view::npos && file.substr(0, slash).ends_with("/tutti") && file.find("/tests/") == std::string_view::npos;
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
