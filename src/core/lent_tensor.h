// A tensor as DLPack hands it over: together with what keeps its memory.
#pragma once

#include <memory>

#include "tutti/tensor.h"

namespace tutti::detail {

/// `Described`: a DLTensor. Its shape and strides stay the tensor's.
template <class Described>
void describe(const Tensor& tensor, Described& as) {
  const DType dtype = tensor.dtype();
  as = {.data = tensor.data(),
        .device = {tensor.device().type, tensor.device().id},
        .ndim = static_cast<int32_t>(tensor.shape().size()),
        .dtype = {dtype.code, dtype.bits, dtype.lanes},
        .shape = const_cast<int64_t*>(tensor.shape().data()),
        .strides = const_cast<int64_t*>(tensor.strides().data()),
        .byte_offset = 0};
}

/// `Managed`: a DLManagedTensor or DLManagedTensorVersioned, whose deleter frees it. Version and flags are 0.
template <class Managed>
Managed* lend(const Tensor& tensor) {
  struct Lent {
    Managed managed{};
    Tensor tensor;
  };
  auto lent = std::make_unique<Lent>();
  lent->tensor = tensor;
  describe(lent->tensor, lent->managed.dl_tensor);
  lent->managed.manager_ctx = lent.get();
  lent->managed.deleter = [](Managed* self) { delete static_cast<Lent*>(self->manager_ctx); };
  return &lent.release()->managed;
}

}  // namespace tutti::detail
