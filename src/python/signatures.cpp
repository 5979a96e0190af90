// What inspect.signature(), help() and editors show of the extension's functions. CPython reads a signature from the beginning of
// a docstring, "name(a, b=1)\n--\n\n", without types; pybind11 writes "name(a: int, b: int = 1) -> int\n\n".
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "python/object.h"

namespace tutti::python {
namespace {

/// "(self: Session, op: str = 'sum') -> DRef..." is "(self, op= 'sum')".
std::string without_types(std::string_view shown) {
  std::string text;
  int depth = 0;
  bool in_type = false;
  for (const char c : shown) {
    depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    if (depth == 1 && c == ':') in_type = true;
    else if (depth == 0 || (depth == 1 && (c == ',' || c == '='))) in_type = false;
    if (!in_type) text += c;
    if (depth == 0) return text;
  }
  return {};
}

/// pybind11 allocates a docstring by strdup and frees it with the function.
void give_signature(PyObject* function) {
  PyMethodDef& method = *reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  const std::string_view name = method.ml_name, doc = method.ml_doc ? method.ml_doc : "";
  if (!doc.starts_with(name) || !doc.substr(name.size()).starts_with("(")) return;
  const std::string parameters = without_types(doc.substr(name.size()));
  const size_t first_line = doc.find('\n'), words = first_line == doc.npos ? doc.npos : doc.find_first_not_of('\n', first_line);
  if (parameters.empty()) return;
  const std::string text = std::string(name) + parameters + "\n--\n\n" + std::string(words == doc.npos ? "" : doc.substr(words));
  std::free(const_cast<char*>(std::exchange(method.ml_doc, strdup(text.c_str()))));
}

}  // namespace

void give_signatures(py::handle module) {
  for (const auto& [name, thing] : py::dict(module.attr("__dict__"))) {
    if (PyCFunction_Check(thing.ptr())) give_signature(thing.ptr());
    if (!PyType_Check(thing.ptr())) continue;
    for (const auto& [key, method] : py::dict(thing.attr("__dict__")))
      if (PyInstanceMethod_Check(method.ptr())) give_signature(PyInstanceMethod_GET_FUNCTION(method.ptr()));
      else if (Py_TYPE(method.ptr()) == &PyStaticMethod_Type) give_signature(method.attr("__func__").ptr());
  }
}

}  // namespace tutti::python
