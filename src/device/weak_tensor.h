#pragma once

#include <memory>

#include "tutti/tensor.h"

namespace tutti {

/// A tensor's elements, which this does not keep.
class Tensor::Weak {
 public:
  explicit Weak(const Tensor& tensor) : storage_(tensor.storage_) {}
  [[gnu::visibility("hidden")]] void poison(Poison origin) const;
  bool is_gone() const { return storage_.expired(); }
  bool operator==(const Weak& other) const { return !(*this < other) && !(other < *this); }
  bool operator<(const Weak& other) const { return storage_.owner_before(other.storage_); }

 private:
  std::weak_ptr<Storage> storage_;
};

}  // namespace tutti
