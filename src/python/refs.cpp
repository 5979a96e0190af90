// Types of their own instead of pybind11's, which takes over a microsecond to pass a call on and to make its result.
#include "python/refs.h"

#include <fmt/format.h>
#include <pybind11/stl.h>
#include <structmember.h>

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "python/errors.h"
#include "python/gil.h"
#include "python/object.h"
#include "python/where.h"

namespace tutti::python {
namespace {

constexpr size_t kFew = 4;

/// A million calls a second go through here.
PyObject* vectorcall(PyObject* self, PyObject* const* args, size_t flagged, PyObject* names) try {
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flagged));
  if (names && PyTuple_GET_SIZE(names) > 0) throw py::type_error("a call of a DPackedFunc takes no keyword arguments");
  const Ref& function = reinterpret_cast<RefObject*>(self)->ref;
  if (count <= kFew) {
    std::array<Value, kFew> values;
    for (size_t i = 0; i < count; ++i) values[i] = to_value(args[i]);
    return to_ref(call(function, Args(values.data(), count))).release().ptr();
  }
  List values;
  values.reserve(count);
  for (size_t i = 0; i < count; ++i) values.push_back(to_value(args[i]));
  return to_ref(call(function, values)).release().ptr();
} catch (...) {
  set_python_error();
  return nullptr;
}

void deallocate(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  auto* object = reinterpret_cast<RefObject*>(self);
  if (object->weak_references) PyObject_ClearWeakRefs(self);
  object->ref.~Ref();
  type->tp_free(self);
  Py_DECREF(type);
}

/// DPackedFunc(dref, session=None) and DModule(dref, session=None), as Disco has them.
PyObject* new_from_dref(PyTypeObject* type, PyObject* args, PyObject* named) try {
  static const char* names[] = {"dref", "session", nullptr};
  PyObject *dref = nullptr, *session = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, named, "O!|O", const_cast<char**>(names), ref_types().ref, &dref, &session))
    return nullptr;
  const Ref& ref = *as_ref(dref);
  if (session && session != Py_None && about_of(session) != ref.about.get())
    throw UsageError(fmt::format("{}: expected the session of the DRef, got {}", type->tp_name, std::string(py::repr(session))));
  return make_ref_object(type, ref).release().ptr();
} catch (...) {
  set_python_error();
  return nullptr;
}

int initialize(PyObject* /*self*/, PyObject* /*args*/, PyObject* /*named*/) {
  return 0;
}  // all is done; subclasses hand on what they like

std::string describe(const py::object& self) {
  if (!as_ref(self)) throw py::type_error("no handle of a session");
  const Ref& ref = *as_ref(self);
  const auto type = py::type::handle_of(self).attr("__name__").cast<std::string>();
  if (!ref.dref) return fmt::format("{}(empty)", type);
  return fmt::format("{}(reg={}, session={} {} worker{})", type, ref.dref.reg_id(), ref.about->kind, ref.about->num_workers,
                     ref.about->num_workers == 1 ? "" : "s");
}

template <class... Extra>
void method(PyTypeObject* type, const char* name, auto function, const Extra&... extra) {
  const py::handle owner(reinterpret_cast<PyObject*>(type));
  owner.attr(name) = py::cpp_function(std::move(function), py::name(name), py::is_method(owner), extra...);
}

PyTypeObject* make_type(py::module_& module, const char* name, const char* doc, PyTypeObject* base, bool is_made_from_dref,
                        bool is_called) {
  static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(RefObject, weak_references), READONLY, nullptr},
                                  {"__vectorcalloffset__", T_PYSSIZET, offsetof(RefObject, vectorcall), READONLY, nullptr},
                                  {}};
  std::vector<PyType_Slot> slots{
      {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)}, {Py_tp_members, members}, {Py_tp_doc, const_cast<char*>(doc)}};
  if (is_made_from_dref)
    slots.insert(slots.end(),
                 {{Py_tp_new, reinterpret_cast<void*>(&new_from_dref)}, {Py_tp_init, reinterpret_cast<void*>(&initialize)}});
  if (is_called) slots.push_back({Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)});
  slots.push_back({0, nullptr});
  const unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | (is_made_from_dref ? 0 : Py_TPFLAGS_DISALLOW_INSTANTIATION) |
                         (is_called ? Py_TPFLAGS_HAVE_VECTORCALL : 0);
  const std::string full = std::string("tutti._core.") + name;
  PyType_Spec spec{full.c_str(), sizeof(RefObject), 0, flags, slots.data()};
  auto* type = PyType_FromModuleAndSpec(module.ptr(), &spec, reinterpret_cast<PyObject*>(base));
  if (!type) throw py::error_already_set();
  module.attr(name) = py::handle(type);
  return reinterpret_cast<PyTypeObject*>(type);  // for good
}

}  // namespace

Ref call(const Ref& function, Args args) { return {DPackedFunc(function.dref).call(args, here()), function.about}; }

void check_worker(const About& about, int worker) {
  if (worker >= 0 && worker < about.num_workers) return;
  const std::string message = fmt::format("worker id {}, expected 0 to {}", worker, about.num_workers - 1);
  PyErr_SetString(py::module_::import("tutti._errors").attr("WorkerIndexError").ptr(), message.c_str());
  throw py::error_already_set();
}

/// Seconds, None: no limit.
Timeout to_timeout(const std::optional<double>& seconds) {
  if (!seconds) return {};
  return std::chrono::milliseconds(static_cast<int64_t>(std::clamp(*seconds, 0.0, 1e9) * 1000));
}

void bind_refs(py::module_& module) {
  using namespace py::literals;
  const auto none = py::none();
  PyTypeObject *&ref_type = ref_types().ref, *&function_type = ref_types().function, *&module_type = ref_types().module;
  ref_types().call = &vectorcall;
  ref_type = make_type(module, "DRef", "A register that exists on every worker; the last reference frees it, without a message.",
                       nullptr, false, false);
  function_type = make_type(module, "DPackedFunc",
                            "DPackedFunc(dref, session=None)\n--\n\n"
                            "A function in a register; calling it calls it on every worker and returns a DRef.",
                            ref_type, true, true);
  module_type = make_type(module, "DModule",
                          "DModule(dref, session=None)\n--\n\n"
                          "A module that load_vm_module has loaded on every worker: module['name'] is a DPackedFunc.",
                          ref_type, true, false);
  method(ref_type, "__repr__", &describe);
  const py::handle dref(reinterpret_cast<PyObject*>(ref_type));
  dref.attr("reg_id") =
      py::module_::import("builtins")
          .attr("property")(py::cpp_function([](const Ref& self) { return self.dref.reg_id(); }, py::is_method(dref)));
  method(
      ref_type, "same_as",
      [](const Ref& self, const py::object& other) {
        const Ref* ref = as_ref(other);
        return ref && ref->about == self.about && ref->dref.reg_id() == self.dref.reg_id();
      },
      "other"_a, "Whether both are handles to one register.");
  method(
      ref_type, "debug_get_from_remote",
      [](const Ref& self, int worker_id, std::optional<double> timeout) {
        const Where where = here();
        check_worker(*self.about, worker_id);
        return to_python(without_gil([&] { return self.dref.debug_get_from_remote(worker_id, to_timeout(timeout), where); }));
      },
      "worker_id"_a, "timeout"_a = none,
      "The value on one worker. Waits for it, and raises that worker's errors.\n\n"
      "timeout: seconds. Raises UsageError (functions, modules and opaque objects travel from worker 0 only), IndexError, "
      "RemoteError,\n"
      "TimeoutError, TransportError.");
  method(
      ref_type, "debug_copy_from",
      [](const Ref& self, int worker_id, const py::object& value, std::optional<double> timeout) {
        const Where where = here();
        check_worker(*self.about, worker_id);
        Value sent = to_value(value);
        if (const auto* tensor = std::get_if<Tensor>(&sent.data())) sent = tensor->contiguous();
        without_gil([&] {
          self.dref.debug_copy_from(worker_id, sent, to_timeout(timeout), where);
          sent = {};
        });
      },
      "worker_id"_a, "value"_a, "timeout"_a = none,
      "Sets the value on one worker: in place when it is an array of the same count and dtype. Waits for it.");
  method(
      module_type, "__getitem__",
      [](const Ref& self, const std::string& name) {
        return to_function_ref({DModule(self.dref)[LocatedValue(name, here())], self.about});
      },
      "name"_a, "The function of that name; a missing one is an error of the next call that waits.");
  // A completion must not wait, nor take errors that the next call is to raise: it knows what functions() has said.
  using Names = std::map<std::pair<std::shared_ptr<const About>, int64_t>, std::vector<std::string>>;
  static auto& known = *new Names;  // with the lock
  const auto key = [](const Ref& self) { return std::pair(self.about, self.dref.reg_id()); };
  method(
      module_type, "functions",
      [key](const Ref& self) {
        const Where where = here();
        return known[key(self)] = without_gil([&] { return DModule(self.dref).functions({}, where); });
      },
      "Names of the library's functions, as worker 0 has it. Waits for it; module['<Tab> completes them from then on.");
  method(module_type, "_ipython_key_completions_", [key](const Ref& self) {
    const auto found = known.find(key(self));
    return found == known.end() ? std::vector<std::string>() : found->second;
  });
}

}  // namespace tutti::python
