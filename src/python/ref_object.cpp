#include "python/ref_object.h"

namespace tutti::python {

RefTypes& ref_types() {
  static RefTypes types;
  return types;
}

const Ref* as_ref(py::handle object) {
  return PyObject_TypeCheck(object.ptr(), ref_types().ref) ? &reinterpret_cast<RefObject*>(object.ptr())->ref : nullptr;
}

py::object make_ref_object(PyTypeObject* type, Ref ref) {
  auto made = py::reinterpret_steal<py::object>(type->tp_alloc(type, 0));
  if (!made) throw py::error_already_set();
  auto* object = reinterpret_cast<RefObject*>(made.ptr());
  object->vectorcall = ref_types().call;
  new (&object->ref) Ref(std::move(ref));
  return made;
}

py::object to_ref(Ref ref) { return make_ref_object(ref_types().ref, std::move(ref)); }
py::object to_function_ref(Ref ref) { return make_ref_object(ref_types().function, std::move(ref)); }
py::object to_module_ref(Ref ref) { return make_ref_object(ref_types().module, std::move(ref)); }

}  // namespace tutti::python
