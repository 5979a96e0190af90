#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/device.h"
#include "tutti/dtype.h"
#include "tutti/export.h"

namespace tutti {

using Shape = std::vector<int64_t>;

TUTTI_API std::string to_string(const Shape& shape);            ///< "(2, 3)"
TUTTI_API int64_t element_count(const Shape& shape);            ///< product; 1 for ()
TUTTI_API int64_t size_bytes(const Shape& shape, DType dtype);  ///< @throws UsageError  there is no such tensor

/// A shared handle on n-d memory, DLPack-shaped. Copies of the handle and views share the elements.
/// Row-major when tutti allocates; a view keeps strides and byte_offset.
class TUTTI_API Tensor {
 public:
  Tensor() = default;  ///< holds nothing; operator bool is false

  /// Uninitialised memory, aligned to 64 bytes.  @throws UsageError (negative extent), SystemError (no memory)
  /// @note Host memory from 16 KiB on can be mapped by the node's other ranks, and is shared with a child after fork(), not
  /// copied: what either writes, both see. Start children before, or let them only read what the parent leaves alone.
  static Tensor empty(Shape shape, DType dtype = kFloat32, Device device = cpu());
  /// Uninitialised, with the other's shape, dtype and device, row-major.
  static Tensor like(const Tensor& other) { return empty(other.shape(), other.dtype(), other.device()); }
  /// Foreign memory; `release` runs when the last handle goes (may be empty: the caller keeps the memory alive).
  static Tensor wrap(void* data, Shape shape, DType dtype, std::function<void()> release = {}, Shape strides = {},
                     Device device = cpu());
  /// A copy of `values`, of the given shape (default: 1-d).  @throws UsageError  the counts differ
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape = {}) {
    return copy_of(values.data(), static_cast<int64_t>(values.size()), dtype_of<T>(), shape);
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape = {}) {
    return from(std::span<const T>(values.begin(), values.size()), shape);
  }
  /// All elements `value`.
  template <class T>
  static Tensor full(const Shape& shape, T value) {
    Tensor t = empty(shape, dtype_of<T>());
    for (T& x : t.values<T>()) x = value;
    return t;
  }

  explicit operator bool() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  ///< in elements; never empty for ndim > 0
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  int64_t element_count() const { return count_; }
  int64_t size_bytes() const { return count_ * dtype_.size_bytes(); }
  uint64_t byte_offset() const { return byte_offset_; }
  void* base() const;  ///< start of the storage
  void* data() const;  ///< first element: base() + byte_offset()
  bool is_contiguous() const;

  /// The elements, row-major; valid as long as a handle on the storage lives.  @throws UsageError  T is another type, or the view
  /// is strided, or not in host memory
  template <class T>
  std::span<T> values() const {
    check_values(dtype_of<T>());
    return {static_cast<T*>(data()), static_cast<size_t>(count_)};
  }
  /// The only element of a tensor with one.
  template <class T>
  T item() const {
    return values<T>()[0];
  }

  Tensor reshape(Shape shape) const;                                    ///< a view; the count must agree, contiguous only
  Tensor slice(int64_t begin, int64_t end) const;                       ///< a view of rows [begin, end) of axis 0
  Tensor view(Shape shape, Shape strides, uint64_t byte_offset) const;  ///< any view inside the storage
  Tensor contiguous() const;                                            ///< itself, or a row-major copy of a strided view
  /// Same count and dtype, both contiguous. From or to host memory: done on return. On a device: enqueued on its stream.
  void copy_from(const Tensor& source) const;

  bool is_foreign() const;  ///< made by wrap(): what frees it is the caller's, and may be anything
  bool shares_memory_with(const Tensor& other) const { return storage_ && storage_ == other.storage_; }

  /// Why the elements are lost (a failed collective wrote here), shared by all views. Used by the worker loop.
  struct Poison {
    int worker;
    uint64_t seq;
  };
  void poison(Poison origin) const;
  void clear_poison() const;
  const Poison* poisoned() const;

  class Weak;

 private:
  struct Storage;
  static Tensor copy_of(const void* data, int64_t count, DType dtype, Shape shape);
  void check_values(DType dtype) const;

  std::shared_ptr<Storage> storage_;
  Shape shape_, strides_;
  DType dtype_{};
  Device device_{};
  int64_t count_ = 0;
  uint64_t byte_offset_ = 0;
};

}  // namespace tutti
