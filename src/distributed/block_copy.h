#pragma once

#include <cstddef>

#include "tutti/distributed.h"

namespace tutti::distributed {

/// Row-major memory that holds `held`, a block of a tensor.
struct HeldBlock {
  std::byte* data;
  Block held;
};

/// Where the block begins and ends in the memory, in elements from the memory's begin.
struct Span {
  int64_t begin, end;
};
Span span_of(const Block& block, const Block& held);

/// The block's memory, if it is one piece there; else null.
std::byte* piece_of(const HeldBlock& whole, const Block& block, size_t item_bytes);

/// Copies the elements of `block`, which lies in both.
void copy_block(const HeldBlock& to, const HeldBlock& from, const Block& block, size_t item_bytes);

}  // namespace tutti::distributed
