#include "tutti/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>

#include "device/copy.h"
#include "device/devices.h"
#include "device/streams.h"
#include "device/weak_tensor.h"
#include "tutti/error.h"

namespace tutti {
using namespace detail;

namespace {

/// Memory of the host knows no streams.
Stream memory_stream(Device device) { return device.type == dl::kCPU ? nullptr : current_stream(device); }

}  // namespace

struct Tensor::Storage {
  void* memory = nullptr;
  size_t size_bytes = 0;
  Device device{};
  DeviceApi* owner = nullptr;  // null: foreign
  std::function<void()> release;
  std::atomic<bool> is_poisoned{false};
  Poison poison{};

  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    if (owner) owner->free(memory, size_bytes, device.id, stream_to_free_on(device));
    else if (release && device.type == dl::kCPU) release();
    else if (release) release_foreign(device, std::move(release));
  }
};

namespace {

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // overflows only beside an extent of 0: there are no elements to find then
    if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[i], 1), &stride)) stride = 0;
  }
  return strides;
}

/// Bytes from the first element to the end of the last one.
int64_t extent_bytes(const Shape& shape, const Shape& strides, DType dtype) {
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    if (strides[i] < 0) throw UsageError("negative strides are not supported; copy the array first");
    int64_t reach = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) || __builtin_add_overflow(last, reach, &last))
      throw UsageError(fmt::format("strides {} of shape {} reach beyond 2^63 elements", to_string(strides), to_string(shape)));
  }
  int64_t bytes = 0;
  if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, dtype.size_bytes(), &bytes))
    throw UsageError(fmt::format("strides {} of shape {} reach beyond 2^63 bytes", to_string(strides), to_string(shape)));
  return bytes;
}

}  // namespace

std::string to_string(const Shape& shape) {
  return shape.size() == 1 ? fmt::format("({},)", shape[0]) : fmt::format("({})", fmt::join(shape, ", "));
}

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    if (extent < 0) throw UsageError(fmt::format("shape {} has a negative extent", to_string(shape)));
    if (__builtin_mul_overflow(count, extent, &count))
      throw UsageError(fmt::format("shape {} has more than 2^63 elements", to_string(shape)));
  }
  return count;
}

int64_t size_bytes(const Shape& shape, DType dtype) {
  int64_t size = 0;
  if (dtype.size_bytes() <= 0 || __builtin_mul_overflow(element_count(shape), dtype.size_bytes(), &size))
    throw UsageError(fmt::format("no tensor of {} {} is possible", to_string(shape), to_string(dtype)));
  return size;
}

Tensor Tensor::empty(Shape shape, DType dtype, Device device) {
  const int64_t size_bytes = tutti::size_bytes(shape, dtype);
  DeviceApi& api = device_api(device);
  auto storage = std::make_shared<Storage>();
  storage->memory = api.allocate(static_cast<size_t>(std::max<int64_t>(size_bytes, 1)), device.id, memory_stream(device));
  storage->size_bytes = static_cast<size_t>(size_bytes);
  storage->device = device;
  storage->owner = &api;

  Tensor t;
  t.count_ = tutti::element_count(shape);
  t.storage_ = std::move(storage);
  t.strides_ = row_major_strides(shape);
  t.shape_ = std::move(shape);
  t.dtype_ = dtype;
  t.device_ = device;
  return t;
}

Tensor Tensor::wrap(void* data, Shape shape, DType dtype, std::function<void()> release, Shape strides, Device device) {
  if (dtype.size_bytes() <= 0) throw UsageError(fmt::format("wrap: dtype {} has no size", to_string(dtype)));
  Tensor t;
  t.count_ = tutti::element_count(shape);
  if (strides.empty()) strides = row_major_strides(shape);
  if (strides.size() != shape.size())
    throw UsageError(fmt::format("wrap: {} strides for shape {}", strides.size(), to_string(shape)));
  if (!data && t.count_ > 0) throw UsageError("wrap: data is null");
  t.storage_ = std::make_shared<Storage>();
  t.storage_->memory = data;
  t.storage_->size_bytes = static_cast<size_t>(extent_bytes(shape, strides, dtype));
  t.storage_->device = device;
  t.storage_->release = std::move(release);
  t.shape_ = std::move(shape);
  t.strides_ = std::move(strides);
  t.dtype_ = dtype;
  t.device_ = device;
  return t;
}

Tensor Tensor::copy_of(const void* data, int64_t count, DType dtype, Shape shape) {
  if (shape.empty()) shape = {count};
  if (tutti::element_count(shape) != count)
    throw UsageError(fmt::format("{} values do not fill shape {}", count, to_string(shape)));
  Tensor t = empty(std::move(shape), dtype);
  if (count > 0) std::memcpy(t.data(), data, static_cast<size_t>(t.size_bytes()));
  return t;
}

void* Tensor::base() const { return storage_ ? storage_->memory : nullptr; }
void* Tensor::data() const { return storage_ ? static_cast<char*>(storage_->memory) + byte_offset_ : nullptr; }

bool Tensor::is_foreign() const { return storage_ && !storage_->owner; }

bool Tensor::is_contiguous() const {
  if (count_ == 0) return true;
  int64_t stride = 1;
  for (size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] != 1 && strides_[i] != stride) return false;
    stride *= shape_[i];
  }
  return true;
}

void Tensor::check_values(DType dtype) const {
  if (!storage_) throw UsageError("values(): the tensor is empty (it holds nothing)");
  if (dtype != dtype_) throw UsageError(fmt::format("values<{}>(): the tensor holds {}", to_string(dtype), to_string(dtype_)));
  if (device_.type != dl::kCPU) throw UsageError(fmt::format("values(): the tensor lies on {}", to_string(device_)));
  if (!is_contiguous()) throw UsageError("values(): the view is strided; use contiguous()");
}

Tensor Tensor::reshape(Shape shape) const {
  if (!is_contiguous()) throw UsageError("reshape: the view is strided; use contiguous()");
  if (tutti::element_count(shape) != count_)
    throw UsageError(fmt::format("reshape: {} does not hold the elements of {}", to_string(shape), to_string(shape_)));
  Tensor t = *this;
  t.strides_ = row_major_strides(shape);
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  if (shape_.empty() || begin < 0 || end < begin || end > shape_[0])
    throw UsageError(fmt::format("slice [{}, {}) of shape {}", begin, end, to_string(shape_)));
  Tensor t = *this;
  t.shape_[0] = end - begin;
  t.count_ = tutti::element_count(t.shape_);
  t.byte_offset_ += static_cast<uint64_t>(begin * strides_[0] * dtype_.size_bytes());
  return t;
}

Tensor Tensor::view(Shape shape, Shape strides, uint64_t byte_offset) const {
  if (!storage_ || shape.size() != strides.size()) throw UsageError("view: shape and strides differ in length");
  Tensor t = *this;
  t.count_ = tutti::element_count(shape);
  const auto extent = static_cast<uint64_t>(extent_bytes(shape, strides, dtype_));
  if (byte_offset > storage_->size_bytes || extent > storage_->size_bytes - byte_offset)
    throw UsageError(fmt::format("view {} reaches past the end of the storage", to_string(shape)));
  t.shape_ = std::move(shape);
  t.strides_ = std::move(strides);
  t.byte_offset_ = byte_offset;
  return t;
}

Tensor Tensor::contiguous() const {
  if (!storage_ || is_contiguous()) return *this;
  if (device_.type != dl::kCPU) throw UsageError(fmt::format("contiguous: no strided copy on {}", to_string(device_)));
  Tensor copy = empty(shape_, dtype_, device_);
  const auto item = static_cast<size_t>(dtype_.size_bytes());
  char* out = static_cast<char*>(copy.data());
  Shape index(shape_.size(), 0);
  for (int64_t n = 0; n < count_; ++n, out += item) {
    int64_t offset = 0;
    for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides_[i];
    std::memcpy(out, static_cast<const char*>(data()) + offset * static_cast<int64_t>(item), item);
    for (size_t i = index.size(); i-- > 0;) {
      if (++index[i] < shape_[i]) break;
      index[i] = 0;
    }
  }
  return copy;
}

void Tensor::copy_from(const Tensor& source) const {
  if (!storage_ || !source.storage_) throw UsageError("copy_from: an empty tensor");
  if (source.count_ != count_ || source.dtype_ != dtype_)
    throw UsageError(fmt::format("copy_from: source is {} {}, expected {} elements of {}", to_string(source.dtype_),
                                 to_string(source.shape_), count_, to_string(dtype_)));
  if (!is_contiguous() || !source.is_contiguous())
    throw UsageError(
        "copy_from: a strided view, expected a row-major array (C++: Tensor::contiguous(), Python: numpy.ascontiguousarray)");
  const auto size = static_cast<size_t>(size_bytes());
  if (device_.type == dl::kCPU && source.device_.type == dl::kCPU)
    return device_api(device_).copy(data(), source.data(), size, device_, source.device_, nullptr);
  current_streams().wrote(*this);
  copy(current_streams(), device_, data(), source.device_, source.data(), size);
}

void Tensor::poison(Poison origin) const {
  if (!storage_ || storage_->is_poisoned.load()) return;
  storage_->poison = origin;
  storage_->is_poisoned.store(true);
}
void Tensor::Weak::poison(Poison origin) const {
  Tensor t;
  t.storage_ = storage_.lock();
  t.poison(origin);
}
void Tensor::clear_poison() const {
  if (storage_ && storage_->is_poisoned.load()) storage_->is_poisoned.store(false);
}
const Tensor::Poison* Tensor::poisoned() const { return storage_ && storage_->is_poisoned.load() ? &storage_->poison : nullptr; }

}  // namespace tutti
