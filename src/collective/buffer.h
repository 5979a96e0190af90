#pragma once

#include <cstdint>
#include <cstring>

#include "tutti/tensor.h"

namespace tutti::detail {

/// Row-major memory, as a back end sees it.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype{};
  int64_t size_bytes() const { return count * dtype.size_bytes(); }
  char* at(int64_t element) const { return static_cast<char*>(data) + element * dtype.size_bytes(); }
};

inline Buffer buffer(const Tensor& tensor) {
  return tensor ? Buffer{tensor.data(), tensor.element_count(), tensor.dtype()} : Buffer{};
}

/// Of host memory; also of nothing, or to itself.
inline void copy(char* to, const char* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace tutti::detail
