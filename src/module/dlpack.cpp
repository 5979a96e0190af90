// DLPack's tensors as objects of the C calling convention, and back; and where TVMFFIEnvTensorAlloc takes its memory from.
#include <fmt/format.h>

#include <atomic>
#include <memory>

#include "core/lent_tensor.h"
#include "module/call.h"
#include "module/runtime.h"
#include "tutti/abi.h"
#include "tutti/error.h"
#include "tutti/tensor.h"

using namespace tutti;       // NOLINT: definitions of C functions
using namespace tutti::ffi;  // NOLINT

namespace {

template <class Managed>
TVMFFIObjectHandle take_over(Managed* from, int32_t alignment, int32_t must_be_contiguous) {
  const Tensor looked_at = wrap(from->dl_tensor, {});
  const auto address = reinterpret_cast<uintptr_t>(looked_at.data());
  if (alignment > 1 && address % static_cast<uintptr_t>(alignment) != 0)
    throw UsageError(fmt::format("the tensor's elements lie at {:#x}, expected a multiple of {} bytes", address, alignment));
  if (must_be_contiguous && !looked_at.is_contiguous())
    throw UsageError(
        fmt::format("the tensor's strides are {}, expected those of a row-major one", to_string(looked_at.strides())));
  const auto release = [from] {
    if (from->deleter) from->deleter(from);
  };
  return make_box(wrap(from->dl_tensor, release)).release();
}

ObjectRef tensor_object(TVMFFIObjectHandle handle) {
  auto object = ObjectRef::share(static_cast<TVMFFIObject*>(handle));
  if (!object || object.get()->type_index != kTVMFFITensor) throw UsageError("an object handle is null or no tensor's");
  return object;
}

Tensor tensor_in(TVMFFIObjectHandle object) { return tensor_of(tensor_object(object)); }

DLManagedTensorVersioned* lend_versioned(const Tensor& tensor) {
  auto* lent = detail::lend<DLManagedTensorVersioned>(tensor);
  lent->version = {1, 0};
  return lent;
}

Tensor empty_like(const DLTensor& t) {
  return Tensor::empty(Shape(t.shape, t.shape + t.ndim), {t.dtype.code, t.dtype.bits, t.dtype.lanes},
                       {t.device.device_type, t.device.device_id});
}

thread_local TVMFFITensorAllocator own_allocator = nullptr;
std::atomic<TVMFFITensorAllocator> common_allocator{nullptr};

struct Refusal {
  std::string kind, message;
};

TVMFFIObjectHandle allocate_by(TVMFFITensorAllocator allocator, DLTensor* prototype) {
  DLManagedTensorVersioned* made = nullptr;
  Refusal refusal;
  const auto refuse = [](void* to, const char* kind, const char* message) {
    *static_cast<Refusal*>(to) = {kind ? kind : "error", message ? message : ""};
  };
  if (allocator(prototype, &made, &refusal, refuse) != 0 || !made)
    throw SystemError(fmt::format("the allocator of tensors failed: {}: {}", refusal.kind, refusal.message));
  try {
    return take_over(made, 0, 0);
  } catch (...) {
    if (made->deleter) made->deleter(made);
    throw;
  }
}

}  // namespace

int tutti::ffi::allocate_tensor(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_ctx,
                                void (*set_error)(void* error_ctx, const char* kind, const char* message)) {
  try {
    *out = lend_versioned(empty_like(*prototype));
    return 0;
  } catch (const std::exception& error) {
    set_error(error_ctx, "MemoryError", error.what());
    return -1;
  }
}

int TVMFFITensorFromDLPack(DLManagedTensor* from, int32_t require_alignment, int32_t require_contiguous,
                           TVMFFIObjectHandle* out) {
  return guard([&] { *out = take_over(from, require_alignment, require_contiguous); });
}
int TVMFFITensorFromDLPackVersioned(DLManagedTensorVersioned* from, int32_t require_alignment, int32_t require_contiguous,
                                    TVMFFIObjectHandle* out) {
  return guard([&] {
    if (from->version.major != 1)
      throw UsageError(fmt::format("a tensor of DLPack {}.{}, expected 1", from->version.major, from->version.minor));
    constexpr uint64_t kPadded = 4;
    if (from->flags & kPadded) throw UsageError("a tensor whose elements of less than a byte are padded; expected packed ones");
    *out = take_over(from, require_alignment, require_contiguous);
  });
}
int TVMFFITensorToDLPack(TVMFFIObjectHandle from, DLManagedTensor** out) {
  return guard([&] { *out = detail::lend<DLManagedTensor>(tensor_in(from)); });
}
int TVMFFITensorToDLPackVersioned(TVMFFIObjectHandle from, DLManagedTensorVersioned** out) {
  return guard([&] { *out = lend_versioned(tensor_in(from)); });
}
int TVMFFITensorCreateUnsafeView(TVMFFIObjectHandle source, const DLTensor* prototype, TVMFFIObjectHandle* out) {
  return guard([&] {
    ObjectRef keep = tensor_object(source);
    *out = make_box(wrap(*prototype, [kept = std::move(keep)] {})).release();
  });
}

int TVMFFIEnvTensorAlloc(DLTensor* prototype, TVMFFIObjectHandle* out) {
  return guard([&] {
    auto* const allocator = TVMFFIEnvGetDLPackManagedTensorAllocator();
    if (allocator && allocator != &allocate_tensor) return void(*out = allocate_by(allocator, prototype));
    *out = make_box(empty_like(*prototype)).release();
  });
}
int TVMFFIEnvSetDLPackManagedTensorAllocator(TVMFFITensorAllocator allocator, int for_all_threads,
                                             TVMFFITensorAllocator* out_original) {
  TUTTI_BY_LIBTVM_FFI(TVMFFIEnvSetDLPackManagedTensorAllocator, allocator, for_all_threads, out_original);
  if (out_original) *out_original = own_allocator;
  own_allocator = allocator;
  if (for_all_threads) common_allocator = allocator;
  return 0;
}
TVMFFITensorAllocator TVMFFIEnvGetDLPackManagedTensorAllocator() {
  TUTTI_BY_LIBTVM_FFI(TVMFFIEnvGetDLPackManagedTensorAllocator);
  return own_allocator ? own_allocator : common_allocator.load();
}
int TVMFFIEnvCheckSignals() {
  TUTTI_BY_LIBTVM_FFI(TVMFFIEnvCheckSignals);
  return 0;
}
