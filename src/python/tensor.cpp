#include <fmt/format.h>
#include <pybind11/numpy.h>

#include "core/lent_tensor.h"
#include "python/exchange.h"
#include "python/gil.h"
#include "python/object.h"
#include "python/ref_object.h"
#include "tutti/dlpack.h"
#include "tutti/tensor.h"
#include "tutti/worker.h"

namespace tutti::python {
namespace {

/// What capsules named "dltensor" hold: DLPack before version 1, which all exchange.
struct ManagedTensor {
  dl::Tensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(ManagedTensor* self);
};

py::capsule to_dlpack(const Tensor& tensor) {
  auto* lent = detail::lend<ManagedTensor>(tensor);
  return py::capsule(lent, "dltensor", [](PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, "dltensor")) return;  // somebody has taken it
    auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
    managed->deleter(managed);
  });
}

/// A stream as DLPack and CUDA's array interface number it: CUDA's default one is 1, as 0 could be either of two.
int64_t number_of(void* stream, Device device) {
  return stream || device.type != dl::kCUDA ? static_cast<int64_t>(reinterpret_cast<intptr_t>(stream)) : 1;
}
int64_t own_stream(Device device) { return number_of(stream(device), device); }

/// What the consumer enqueues on its stream from now on comes after what is on ours by now. -1: it takes care by itself.
void order_consumer(const Tensor& tensor, const py::object& consumer) {
  const Device device = tensor.device();
  const int64_t number = consumer.is_none() ? number_of(nullptr, device) : consumer.cast<int64_t>();
  if (device.type == dl::kCPU || number == -1) return;
  void* const theirs = reinterpret_cast<void*>(static_cast<intptr_t>(number));
  if (!worker::active()) order_after_all(device, theirs);
  else if (number != own_stream(device)) order_streams(device, stream(device), theirs);
}

/// The same the other way round: the owner is told our stream.
py::object capsule_of(py::handle object) {
  const auto where = object.attr("__dlpack_device__")();
  const Device device{where[py::int_(0)].cast<int32_t>(), where[py::int_(1)].cast<int32_t>()};
  if (device.type != dl::kCUDA && device.type != dl::kROCM) return object.attr("__dlpack__")();
  return object.attr("__dlpack__")(py::arg("stream") = own_stream(device));
}

Tensor from_dlpack(py::handle object) {
  if (auto taken = take_by_exchange(object)) return *taken;
  const py::object capsule = capsule_of(object);
  if (!PyCapsule_IsValid(capsule.ptr(), "dltensor"))
    throw UsageError("from_dlpack: __dlpack__() gave no capsule named \"dltensor\"");
  auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  return take_over(managed);
}

/// pybind11 looks numpy up inside a C++ static: whoever waited for that with Python's lock, while numpy is imported without it,
/// would wait for ever. Imported before, it is there.
bool is_array(py::handle object) {
  py::module_::import("numpy");
  return py::isinstance<py::array>(object);
}

Tensor from_array(const py::array& array, bool must_write) {
  const py::dtype dtype = array.dtype();
  const auto name = py::str(dtype.attr("name")).cast<std::string>();
  if (!dtype.attr("isnative").cast<bool>())
    throw UsageError(fmt::format("an array of {} in another byte order than this machine's", name));
  if (must_write && !array.writeable()) throw UsageError("the array is read-only, and would be written to");
  const DType type = parse_dtype(name);
  const int64_t item = type.size_bytes();  // not array.itemsize(): an old pybind11 reads that wrongly of numpy 2
  Shape shape, strides;
  for (py::ssize_t i = 0; i < array.ndim(); ++i) {
    shape.push_back(array.shape(i));
    if (array.strides(i) % item != 0 && array.shape(i) > 1)
      throw UsageError(
          fmt::format("an array whose strides ({} bytes) are no multiple of an element ({})", array.strides(i), item));
    strides.push_back(array.strides(i) / item);
  }
  return Tensor::wrap(
      const_cast<void*>(array.data()), shape, type, [kept = keep(array)]() mutable { kept.reset(); }, strides);
}

/// In bytes, as Python wants them.
std::vector<py::ssize_t> byte_strides(const Tensor& tensor) {
  std::vector<py::ssize_t> strides;
  for (const int64_t stride : tensor.strides()) strides.push_back(stride * tensor.dtype().size_bytes());
  return strides;
}

void check_host(const Tensor& tensor, const char* what) {
  if (tensor.device().type != dl::kCPU)
    throw UsageError(fmt::format("{}: the tensor lies on {}", what, to_string(tensor.device())));
}

/// As numpy has it: lanes are the last axis, as in TVM.
struct Lanes {
  explicit Lanes(const Tensor& tensor)
      : dtype(tensor.dtype()), shape(tensor.shape().begin(), tensor.shape().end()), strides(byte_strides(tensor)) {
    const uint16_t lanes = std::exchange(dtype.lanes, 1);
    if (lanes == 1) return;
    shape.push_back(lanes);
    strides.push_back(dtype.size_bytes());
  }
  DType dtype;
  std::vector<py::ssize_t> shape, strides;
};

py::buffer_info buffer(const Tensor& tensor) {
  const Lanes lanes(tensor);
  const auto format = py::module_::import("tutti._types").attr("buffer_format")(to_string(lanes.dtype)).cast<std::string>();
  return {tensor.data(), lanes.dtype.size_bytes(), format, std::ssize(lanes.shape), lanes.shape, lanes.strides};
}

/// pybind11's, which no exception may leave, and which does not look whether the reader can do with strides.
int get_buffer(PyObject* object, Py_buffer* view, int flags) {
  const auto& tensor = py::handle(object).cast<Tensor&>();
  view->obj = nullptr;
  if (tensor.device().type != dl::kCPU || (!tensor.is_contiguous() && (flags & PyBUF_STRIDES) != PyBUF_STRIDES)) {
    PyErr_SetString(PyExc_BufferError,
                    tensor.device().type != dl::kCPU ? "the tensor is not in host memory" : "the tensor is a strided view");
    return -1;
  }
  return py::detail::pybind11_getbuffer(object, view, flags);
}

}  // namespace

Tensor to_tensor(py::handle object, bool must_write) {
  if (py::isinstance<Tensor>(object)) return object.cast<Tensor>();
  if (is_array(object)) return from_array(py::reinterpret_borrow<py::array>(object), must_write);
  if (py::hasattr(object, "__dlpack__")) return from_dlpack(object);
  if (!must_write && as_ref(object))
    throw UsageError("expected a host array, got a DRef; broadcast_from_worker0 and scatter_from_worker0 take those");
  if (!must_write) return from_array(py::module_::import("numpy").attr("asarray")(object).cast<py::array>(), false);
  throw UsageError(fmt::format("expected an array to write into, got {}", std::string(py::str(py::type::handle_of(object)))));
}

Tensor to_contiguous_tensor(py::handle object) {
  if (!is_array(object)) return to_tensor(object).contiguous();
  return to_tensor(
      py::module_::import("numpy").attr("asarray")(object, py::arg("order") = "C"));  // any strides, also negative ones
}

py::object to_numpy(const py::object& self) {
  const auto tensor = self.cast<Tensor>();
  check_host(tensor, "numpy()");
  const Lanes lanes(tensor);
  const auto dtype = py::module_::import("tutti._types").attr("numpy_dtype")(to_string(lanes.dtype)).cast<py::dtype>();
  py::module_::import("numpy");  // as above
  return py::array(dtype, lanes.shape, lanes.strides, tensor.data(), self);
}

template <class Numbers>
py::object tuple_of(const Numbers& numbers) {
  py::tuple tuple(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) tuple[i] = numbers[i];
  return tuple;
}

/// CUDA's array interface, version 3.
py::dict cuda_interface(const Tensor& tensor) {
  const DType type = tensor.dtype();
  if (tensor.device().type != dl::kCUDA) throw py::attribute_error("the tensor is not on a CUDA device");
  if (type.code != dl::kInt && type.code != dl::kUInt && type.code != dl::kFloat && type.code != dl::kBool &&
      type.code != dl::kComplex)
    throw py::attribute_error("the interface has no " + to_string(type) + "; DLPack has");
  if (!worker::active()) order_after_all(tensor.device(), nullptr);  // the consumer is told the default stream
  const auto dtype = py::module_::import("tutti._types").attr("numpy_dtype")(to_string(tensor.dtype()));
  py::dict interface;
  interface["version"] = 3;
  interface["shape"] = tuple_of(tensor.shape());
  interface["typestr"] = dtype.attr("str");
  interface["data"] = py::make_tuple(reinterpret_cast<uintptr_t>(tensor.data()), false);
  interface["strides"] = tensor.is_contiguous() ? py::object(py::none()) : tuple_of(byte_strides(tensor));
  interface["stream"] = own_stream(tensor.device());
  return interface;
}

void bind_tensor(py::module_& module) {
  py::class_<Tensor> tensor(
      module, "Tensor", py::buffer_protocol(),
      "An n-dimensional array in memory of tutti or of whoever made it; copies of the handle share the elements.\n\n"
      "numpy.asarray(t) and t.numpy() are views, as are numpy.from_dlpack(t) and torch.from_dlpack(t).");
  tensor.def_buffer([](const Tensor& self) { return buffer(self); });
  reinterpret_cast<PyHeapTypeObject*>(tensor.ptr())->as_buffer.bf_getbuffer = get_buffer;
  tensor
      .def_property_readonly(
          "shape", [](const Tensor& self) { return from_shape(self.shape()); }, "Extents.")
      .def_property_readonly("ndim", [](const Tensor& self) { return self.shape().size(); })
      .def_property_readonly("size", &Tensor::element_count, "Number of elements.")
      .def_property_readonly("nbytes", &Tensor::size_bytes)
      .def_property_readonly(
          "dtype", [](const Tensor& self) { return from_dtype(self.dtype()); }, "A str, such as 'float32'.")
      .def_property_readonly("device", &Tensor::device)
      .def(
          "numpy", [](const py::object& self) { return to_numpy(self); },
          "A numpy array on the same memory, as long as it lives. bfloat16 and float8 need ml_dtypes; without, the bits as "
          "unsigned ints.\n\n"
          "Raises UsageError if the elements are not in host memory.")
      .def(
          "copyfrom",
          [](const py::object& self, const py::object& source) {
            const auto to = self.cast<Tensor>();
            const Tensor from = to_contiguous_tensor(source);
            {
              const WithoutGil without_gil;
              to.copy_from(from);
            }
            return self;
          },
          py::arg("source"), "Copies an array of the same count and dtype into this one, which it returns.")
      .def(
          "__dlpack__",
          [](const Tensor& self, const py::object& stream) {
            order_consumer(self, stream);
            return to_dlpack(self);
          },
          py::arg("stream") = py::none(),
          "On a GPU: what comes later on `stream`, the consumer's, is done after what is on the worker's stream by now. None: "
          "CUDA's "
          "default stream; -1: nothing is waited for.")
      .def_property_readonly("__cuda_array_interface__", &cuda_interface)
      .def("__dlpack_device__", [](const Tensor& self) { return py::make_tuple(self.device().type, self.device().id); })
      .def("__len__",
           [](const Tensor& self) {
             if (self.shape().empty()) throw py::type_error("len() of a 0-d tensor");
             return self.shape()[0];
           })
      .def("__repr__", [](const Tensor& self) {
        return fmt::format("Tensor({}, {}, {})", to_string(self.shape()), to_string(self.dtype()), to_string(self.device()));
      });
  offer_exchange(tensor);
  module.def(
      "from_dlpack", [](const py::object& array) { return from_dlpack(array); }, py::arg("array"),
      "A tensor on the memory of anything with __dlpack__ (numpy, torch, cupy, jax), which it keeps alive.");
  module.def(
      "tensor",
      [](const py::object& array, const py::object& device) {
        const Tensor from = to_contiguous_tensor(array);
        Tensor made = Tensor::empty(from.shape(), from.dtype(), to_device_or_none(device).value_or(cpu()));
        const WithoutGil without_gil;
        made.copy_from(from);
        return made;
      },
      py::arg("array"), py::arg("device") = py::none(),
      "A copy of an array (numpy's, or anything numpy.asarray takes), on a device.");
  module.def(
      "empty",
      [](const py::object& shape, const py::object& dtype, const py::object& device) {
        return Tensor::empty(to_shape(shape), to_dtype(dtype), to_device_or_none(device).value_or(cpu()));
      },
      py::arg("shape"), py::arg("dtype") = "float32", py::arg("device") = py::none(), "An uninitialised tensor of this process.");
}

}  // namespace tutti::python
