// DLPack between Python's libraries: tensors that are taken over, and the C functions by which they are handed over faster.
#pragma once

#include <optional>

#include "python/gil.h"
#include "tutti/tensor.h"

namespace tutti::python {

/// The memory of a DLManagedTensor or DLManagedTensorVersioned, which the tensor frees.
template <class Managed>
Tensor take_over(Managed* managed) {
  std::shared_ptr<Managed> kept(managed, [](Managed* m) {
    if (!m->deleter || !is_alive()) return;
    const WithGil gil;  // its objects may be Python's
    m->deleter(m);
  });
  const auto& t = managed->dl_tensor;
  const auto n = static_cast<size_t>(t.ndim);
  return Tensor::wrap(static_cast<std::byte*>(t.data) + t.byte_offset, Shape(t.shape, t.shape + n),
                      {t.dtype.code, t.dtype.bits, t.dtype.lanes}, [kept]() mutable { kept.reset(); },
                      t.strides ? Shape(t.strides, t.strides + n) : Shape(), {t.device.device_type, t.device.device_id});
}

/// By the C functions that the object's type offers, if it does. On a GPU: our stream comes after theirs.
std::optional<Tensor> take_by_exchange(py::handle object);
/// Offers ours: __dlpack_c_exchange_api__.
void offer_exchange(py::handle tensor_class);

}  // namespace tutti::python
