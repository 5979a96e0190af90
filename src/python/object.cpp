#include "python/object.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>

#include "python/errors.h"
#include "python/gil.h"
#include "python/ref_object.h"
#include "tutti/function.h"

namespace tutti::python {
namespace {

py::object types() { return py::module_::import("tutti._types"); }

bool is_of(py::handle object, const char* type) { return py::isinstance(object, types().attr(type)); }

bool is_numpy(py::handle object) { return std::strncmp(Py_TYPE(object.ptr())->tp_name, "numpy.", 6) == 0; }

int64_t to_int(py::handle object) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow != 0) throw UsageError(fmt::format("the integer {} does not fit into 64 bits", std::string(py::str(object))));
  if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
  return value;
}

bool is_function(py::handle object) {
  return PyFunction_Check(object.ptr()) || PyMethod_Check(object.ptr()) || PyCFunction_Check(object.ptr()) ||
         py::isinstance(object, py::module_::import("functools").attr("partial"));
}

struct RecursiveCall {
  explicit RecursiveCall(const char* where) {
    if (Py_EnterRecursiveCall(where) != 0) throw py::error_already_set();
  }
  ~RecursiveCall() { Py_LeaveRecursiveCall(); }
  RecursiveCall(const RecursiveCall&) = delete;
  RecursiveCall& operator=(const RecursiveCall&) = delete;
};

/// `sequence` changes no more.
Value to_list(const py::tuple& sequence) {
  const RecursiveCall call(" while a list is converted");
  List list;
  list.reserve(sequence.size());
  for (py::handle item : sequence) list.push_back(to_value(item));
  return list;
}

/// A dict stays the object that it is on its worker; this is what travels.
Value content_of_dict(const Opaque& dict) {
  const WithGil gil;
  try {
    const auto object = py::reinterpret_borrow<py::dict>(std::any_cast<std::shared_ptr<PyObject>>(*dict.object).get());
    const auto items = py::reinterpret_steal<py::list>(PyDict_Items(object.ptr()));  // converting may run Python code
    List keys, values;
    for (py::handle item : items) {
      keys.push_back(to_value(py::handle(PyTuple_GET_ITEM(item.ptr(), 0))));
      values.push_back(to_value(py::handle(PyTuple_GET_ITEM(item.ptr(), 1))));
    }
    return Dict(std::move(keys), std::move(values));
  } catch (py::error_already_set& error) {
    error.restore();
    throw_python_error();
  }
}

/// What a value of another library is to us, if a module of ours has said so; else nothing.
py::object converted(py::handle object) {
  const py::object convert = types().attr("converters").attr("get")(py::type::handle_of(object));
  return convert.is_none() ? py::object() : convert(object);
}

/// As a key of a dict: a tuple arrives as a list, which can be none.
py::object to_key(const Value& value) {
  const auto* list = std::get_if<List>(&value.data());
  if (!list) {
    if (value.kind() == Value::Kind::kDict) throw UsageError("a dict can't be a key of a dict");
    return to_python(value);
  }
  py::tuple key(list->size());
  for (size_t i = 0; i < list->size(); ++i) key[i] = to_key((*list)[i]);
  return key;
}

}  // namespace

std::string to_utf8(py::handle str) {
  Py_ssize_t size = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(str.ptr(), &size)) return {text, static_cast<size_t>(size)};
  PyErr_Clear();
  throw UsageError(fmt::format(
      "the str '{}' holds surrogates, which UTF-8 can't carry; send text.encode('utf-8', 'surrogatepass')", said(str)));
}

Value to_value(py::handle object) {
  PyObject* o = object.ptr();
  if (PyLong_CheckExact(o)) return to_int(object);
  if (PyFloat_CheckExact(o)) return PyFloat_AS_DOUBLE(o);
  if (object.is_none()) return {};
  if (PyBool_Check(o)) return o == Py_True;
  if (const Ref* ref = as_ref(object)) return ref->dref;
  if (py::isinstance<Tensor>(object)) return object.cast<Tensor>();
  const bool is_plain = PyUnicode_CheckExact(o) || PyTuple_CheckExact(o) || PyList_CheckExact(o) || PyBytes_CheckExact(o);
  if (const py::object ours = is_plain ? py::object() : converted(object)) return to_value(ours);
  if (PyUnicode_Check(o)) {
    if (is_of(object, "DataType")) return parse_dtype(to_utf8(object));
    return to_utf8(object);
  }
  if (PyBytes_Check(o) || PyByteArray_Check(o)) {
    const auto text = PyBytes_Check(o) ? std::string_view(PyBytes_AS_STRING(o), static_cast<size_t>(PyBytes_GET_SIZE(o)))
                                       : std::string_view(PyByteArray_AS_STRING(o), static_cast<size_t>(PyByteArray_GET_SIZE(o)));
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return Bytes(begin, begin + text.size());
  }
  if (PyTuple_Check(o)) {
    if (is_of(object, "Shape")) return to_shape(object);
    return to_list(py::reinterpret_borrow<py::tuple>(object));
  }
  if (PyList_Check(o)) return to_list(py::reinterpret_steal<py::tuple>(PyList_AsTuple(o)));
  if (py::isinstance<Device>(object)) return object.cast<Device>();
  if (py::isinstance<PackedFunc>(object)) return object.cast<PackedFunc&>().function;
  if (py::isinstance<PyDTensor>(object)) return object.cast<const PyDTensor&>().tensor.parts();
  if (py::isinstance<OpaqueObject>(object)) return object.cast<OpaqueObject&>().opaque;
  if (is_numpy(object)) {
    const auto numpy = py::module_::import("numpy");
    if (py::isinstance(object, numpy.attr("generic"))) {
      const py::object item = object.attr("item")();
      if (py::isinstance(item, numpy.attr("generic")))
        throw UsageError(fmt::format("a {} has no counterpart among tutti's values", type_name(object)));
      return to_value(item);
    }
    if (py::isinstance(object, numpy.attr("dtype"))) return to_dtype(object);
    if (py::isinstance(object, numpy.attr("ndarray"))) {
      const auto strides = object.attr("strides").cast<std::vector<py::ssize_t>>();
      const bool runs_backwards = std::ranges::any_of(strides, [](py::ssize_t stride) { return stride < 0; });
      if (!runs_backwards && object.attr("flags").attr("writeable").cast<bool>()) return to_tensor(object);
      return to_tensor(object.attr("copy")("C"));  // what lies in a register may be written
    }
  }
  if (PyLong_Check(o)) return to_int(object);
  if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
  if (py::hasattr(object, "__dlpack__") || py::hasattr(object, "__array_interface__")) return to_tensor(object);
  if (is_function(object)) return to_function(py::str(py::getattr(object, "__qualname__", py::str(type_name(object)))), object);
  return Opaque{std::make_shared<std::any>(keep(object)), type_name(object), o, PyDict_Check(o) ? &content_of_dict : nullptr};
}

py::object to_python(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNone: return py::none();
    case Value::Kind::kBool: return py::bool_(value.as<bool>());
    case Value::Kind::kInt: return py::int_(value.as<int64_t>());
    case Value::Kind::kFloat: return py::float_(value.as<double>());
    case Value::Kind::kStr: return py::str(std::get<std::string>(value.data()));
    case Value::Kind::kBytes: {
      const auto& bytes = std::get<Bytes>(value.data());
      return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    case Value::Kind::kShape: return from_shape(value.as<Shape>());
    case Value::Kind::kDType: return from_dtype(value.as<DType>());
    case Value::Kind::kDevice: return py::cast(value.as<Device>());
    case Value::Kind::kTensor: return py::cast(value.as<Tensor>());
    case Value::Kind::kList: {
      py::list list;
      for (const Value& item : std::get<List>(value.data())) list.append(to_python(item));
      return list;
    }
    case Value::Kind::kFunction: return py::cast(PackedFunc{value.as<Function>()});
    case Value::Kind::kOpaque: {
      const auto& opaque = std::get<Opaque>(value.data());
      if (auto* object = opaque.object ? std::any_cast<std::shared_ptr<PyObject>>(opaque.object.get()) : nullptr)
        return py::reinterpret_borrow<py::object>(object->get());
      if (opaque.content) {
        const RecursiveCall call(" while a map is converted");
        return to_python(opaque.content(opaque));
      }
      return py::cast(OpaqueObject{opaque});
    }
    case Value::Kind::kRegister: return py::none();  // only arguments of calls are
    case Value::Kind::kDict: {
      const auto& items = std::get<Dict>(value.data());
      py::dict dict;
      for (size_t i = 0; i < items.size(); ++i) {
        dict[to_key(items.keys()[i])] = to_python(items.values()[i]);
      }
      return dict;
    }
  }
  return py::none();
}

DType to_dtype(py::handle object) {
  if (PyUnicode_Check(object.ptr())) return parse_dtype(to_utf8(object));
  if (py::hasattr(object, "name")) return parse_dtype(py::str(object.attr("name")).cast<std::string>());  // np.dtype
  return parse_dtype(py::str(py::module_::import("numpy").attr("dtype")(object).attr("name")).cast<std::string>());
}

Shape to_shape(py::handle object, const char* what) {
  if (PyIndex_Check(object.ptr()) && !PySequence_Check(object.ptr()))
    return {to_int(py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr())))};  // an array is both
  if (!PySequence_Check(object.ptr()) || PyUnicode_Check(object.ptr()))
    throw UsageError(fmt::format("{}: expected an int or a sequence of ints, got {}", what, type_name(object)));
  Shape shape;
  for (const py::object extent :
       py::reinterpret_borrow<py::sequence>(object)) {  // owned: an array makes its items as it is asked
    if (!PyIndex_Check(extent.ptr())) throw UsageError(fmt::format("{}: expected ints, got {}", what, type_name(extent)));
    shape.push_back(to_int(py::reinterpret_steal<py::object>(PyNumber_Index(extent.ptr()))));
  }
  return shape;
}

Device to_device(py::handle object) {
  if (py::isinstance<Device>(object)) return object.cast<Device>();
  if (const py::object ours = converted(object); ours && py::isinstance<Device>(ours)) return ours.cast<Device>();
  throw UsageError(fmt::format("expected a device (tutti.cpu(0)), got {}", type_name(object)));
}
std::optional<Device> to_device_or_none(py::handle object) {
  if (object.is_none()) return std::nullopt;
  return to_device(object);
}

py::object from_dtype(DType dtype) { return types().attr("DataType")(to_string(dtype)); }

py::object from_shape(const Shape& shape) {
  py::tuple extents(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) extents[i] = shape[i];
  return types().attr("Shape")(extents);
}

Function to_function(std::string name, py::handle callable, Function::Options options) {
  return Function(
      std::move(name),
      [kept = keep(callable)](Args args) -> Value {
        const WithGil gil;
        try {
          std::vector<py::object> held;
          std::vector<PyObject*> raw;
          held.reserve(args.size());
          for (const Value& arg : args) {
            held.push_back(to_python(arg));
            raw.push_back(held.back().ptr());
          }
          const auto result = py::reinterpret_steal<py::object>(
              or_stay([&] { return PyObject_Vectorcall(kept.get(), raw.data(), raw.size(), nullptr); }));
          if (!result) throw_python_error();
          return to_value(result);
        } catch (py::error_already_set& error) {  // of a conversion
          error.restore();
          throw_python_error();
        }
      },
      options);
}

py::object call_function(const Function& function, const py::args& args) {
  List values;
  values.reserve(args.size());
  for (py::handle arg : args) values.push_back(to_value(arg));
  Value result;
  {
    const WithoutGil without_gil;
    result = function(values);
    values.clear();
  }
  return to_python(result);
}

void bind_values(py::module_& module) {
  py::class_<Device>(module, "Device", "Where memory lies: device_type as in DLPack (1: host, 2: CUDA) and index.")
      .def(py::init([](int device_type, int index) {
             return Device{device_type, index};
           }),
           py::arg("device_type"), py::arg("index") = 0)
      .def_readonly("device_type", &Device::type)
      .def_readonly("index", &Device::id)
      .def("__eq__", [](Device a, const py::object& b) { return py::isinstance<Device>(b) && a == b.cast<Device>(); })
      .def("__hash__", [](Device d) { return d.type * 1000003 + d.id; })
      .def("__repr__", [](Device d) { return to_string(d); });
  module.def(
      "cpu", [](int index) { return cpu(index); }, py::arg("index") = 0, "The host's memory.");
  module.def(
      "cuda", [](int index) { return cuda(index); }, py::arg("index") = 0, "A GPU's memory.");
  py::class_<PackedFunc>(module, "PackedFunc", "A function of this process, of any language.")
      .def("__call__", [](const PackedFunc& self, const py::args& args) { return call_function(self.function, args); })
      .def_property_readonly("name", [](const PackedFunc& self) { return self.function.name(); })
      .def("__repr__", [](const PackedFunc& self) { return fmt::format("PackedFunc({})", self.function.name()); });
  py::class_<OpaqueObject>(module, "Opaque",
                           "An object of C++ or of a module: it is passed to functions and can't be looked into.")
      .def("__repr__", [](const OpaqueObject& self) { return fmt::format("Opaque({})", self.opaque.type_name); });
  module.def(
      "_register_global_func",
      [](const std::string& name, const py::object& f, bool override) {
        if (!PyCallable_Check(f.ptr()))
          throw UsageError(fmt::format("register_global_func({}): {} is not callable", name, type_name(f)));
        detail::register_function(to_function(name, f), override);
      },
      py::arg("name"), py::arg("f"), py::arg("override"));
  module.def(
      "get_global_func",
      [](const std::string& name, bool allow_missing) -> py::object {
        if (!allow_missing) return py::cast(PackedFunc{get_global_func(name)});
        try {
          return py::cast(PackedFunc{get_global_func(name)});  // which looks further than find_global_func
        } catch (const UsageError&) {
          return py::none();
        }
      },
      py::arg("name"), py::arg("allow_missing") = false,
      "The function registered in this process under `name`.\n\nRaises UsageError (a ValueError) if there is none, unless "
      "allow_missing: then None.");
}

}  // namespace tutti::python
