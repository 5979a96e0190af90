#include "python/exchange.h"

#include <fmt/format.h>

#include <exception>

#include "core/lent_tensor.h"
#include "tutti/dlpack.h"
#include "tutti/worker.h"

namespace tutti::python {
namespace {

constexpr const char* kCapsule = "dlpack_exchange_api";
constexpr dl::PackVersion kVersion{1, 3};

/// DLPack's, in our own words: what the attribute __dlpack_c_exchange_api__ of a class of tensors points to. 0 is success; else a
/// Python exception is set, or set_error called.
struct Exchange {
  dl::PackVersion version;
  Exchange* previous;
  int (*allocate)(dl::Tensor* prototype, dl::ManagedTensorVersioned** out, void* error_ctx,
                  void (*set_error)(void* error_ctx, const char* kind, const char* message));
  int (*from_object)(void* object, dl::ManagedTensorVersioned** out);
  int (*to_object)(dl::ManagedTensorVersioned* tensor, void** out);
  int (*describe)(void* object, dl::Tensor* out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

template <class Body>
int guard(Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (const py::error_already_set& error) {
    py::error_already_set(error).restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  }
  return -1;
}

PyTypeObject* tensor_type = nullptr;

/// pybind11 need not look the type up, which takes as long as all the rest.
const Tensor& tensor_in(void* object) {
  const auto* instance = static_cast<py::detail::instance*>(object);
  if (Py_TYPE(static_cast<PyObject*>(object)) == tensor_type && instance->simple_layout && instance->simple_value_holder[0])
    return *static_cast<const Tensor*>(instance->simple_value_holder[0]);
  return py::handle(static_cast<PyObject*>(object)).cast<Tensor&>();
}

dl::ManagedTensorVersioned* lend_versioned(const Tensor& tensor) {
  auto* lent = detail::lend<dl::ManagedTensorVersioned>(tensor);
  lent->version = kVersion;
  return lent;
}

int allocate(dl::Tensor* prototype, dl::ManagedTensorVersioned** out, void* error_ctx,
             void (*set_error)(void*, const char*, const char*)) {
  try {
    const dl::Tensor& t = *prototype;
    *out = lend_versioned(Tensor::empty(Shape(t.shape, t.shape + t.ndim), {t.dtype.code, t.dtype.bits, t.dtype.lanes},
                                        {t.device.device_type, t.device.device_id}));
    return 0;
  } catch (const std::exception& error) {
    set_error(error_ctx, "MemoryError", error.what());
    return -1;
  }
}
int from_object(void* object, dl::ManagedTensorVersioned** out) {
  return guard([&] { *out = lend_versioned(tensor_in(object)); });
}
int to_object(dl::ManagedTensorVersioned* tensor, void** out) {
  return guard([&] { *out = py::cast(take_over(tensor)).release().ptr(); });
}
int view_object(void* object, dl::Tensor* out) {
  return guard([&] { detail::describe(tensor_in(object), *out); });
}
/// A worker's own; else the default stream, after what is on any worker's by now.
int current_stream(int32_t device_type, int32_t device_id, void** out) {
  return guard([&] {
    const Device device{device_type, device_id};
    *out = nullptr;
    if (device.type != dl::kCUDA && device.type != dl::kROCM) return;
    if (worker::active()) *out = stream(device);
    else order_after_all(device, nullptr);
  });
}

}  // namespace

std::optional<Tensor> take_by_exchange(py::handle object) {
  const auto offered = py::reinterpret_steal<py::object>(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())), "__dlpack_c_exchange_api__"));
  if (!offered) PyErr_Clear();
  if (!offered || !PyCapsule_IsValid(offered.ptr(), kCapsule)) return std::nullopt;
  const auto* theirs = static_cast<const Exchange*>(PyCapsule_GetPointer(offered.ptr(), kCapsule));
  if (theirs->version.major != kVersion.major) return std::nullopt;
  dl::ManagedTensorVersioned* managed = nullptr;
  if (theirs->from_object(object.ptr(), &managed) != 0) throw py::error_already_set();
  constexpr uint64_t kReadOnly = 1, kPadded = 4;
  if (managed->version.major != kVersion.major || (managed->flags & (kReadOnly | kPadded)) != 0) {
    if (managed->deleter) managed->deleter(managed);
    return std::nullopt;  // __dlpack__() says that it can't be had, or makes a copy
  }
  Tensor tensor = take_over(managed);
  const Device device = tensor.device();
  if (device.type == dl::kCUDA || device.type == dl::kROCM) {
    void* their_stream = nullptr;
    if (theirs->current_stream(device.type, device.id, &their_stream) != 0) throw py::error_already_set();
    if (their_stream != stream(device)) order_streams(device, their_stream, stream(device));
  }
  return tensor;
}

void offer_exchange(py::handle tensor_class) {
  static Exchange ours{kVersion, nullptr, allocate, from_object, to_object, view_object, current_stream};
  tensor_type = reinterpret_cast<PyTypeObject*>(tensor_class.ptr());
  tensor_class.attr("__dlpack_c_exchange_api__") = py::capsule(&ours, kCapsule);
}

}  // namespace tutti::python
