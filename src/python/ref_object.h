// Handles to registers as Python's objects: DRef, DPackedFunc, DModule. What they do: python/refs.h.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "tutti/distributed.h"
#include "tutti/session.h"

namespace tutti::python {

namespace py = pybind11;

/// What a handle can say of its session when that is gone.
struct About {
  std::string kind;
  int num_workers = 0;
};

struct Ref {
  DRef dref;
  std::shared_ptr<const About> about;
};

/// A DTensor: a handle to the register of its parts.
struct PyDTensor {
  distributed::DTensor tensor;
  std::shared_ptr<const About> about;
};

struct RefObject {
  PyObject ob_base;
  PyObject* weak_references;
  vectorcallfunc vectorcall;
  Ref ref;
};
/// Made by bind_refs, before any handle.
struct RefTypes {
  PyTypeObject *ref = nullptr, *function = nullptr, *module = nullptr;
  vectorcallfunc call = nullptr;  ///< what a call of a handle runs
};
RefTypes& ref_types();

const Ref* as_ref(py::handle object);                     ///< null: it is none
py::object make_ref_object(PyTypeObject* type, Ref ref);  ///< `type`: one of RefTypes, or derived from one
py::object to_ref(Ref ref);                               ///< a DRef
py::object to_function_ref(Ref ref);                      ///< a DPackedFunc
py::object to_module_ref(Ref ref);                        ///< a DModule

}  // namespace tutti::python

namespace pybind11::detail {

template <>
struct type_caster<tutti::python::Ref> {
  static constexpr auto name = const_name("tutti.DRef");
  bool load(handle source, bool /*convert*/) { return (ref_ = tutti::python::as_ref(source)) != nullptr; }
  template <class T>
  using cast_op_type = const tutti::python::Ref&;
  operator const tutti::python::Ref&() const { return *ref_; }  // NOLINT: pybind11's way
  static handle cast(tutti::python::Ref ref, return_value_policy /*policy*/, handle /*parent*/) {
    return tutti::python::to_ref(std::move(ref)).release();
  }

 private:
  const tutti::python::Ref* ref_ = nullptr;
};

}  // namespace pybind11::detail
