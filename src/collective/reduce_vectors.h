#pragma once

#include <cstdint>
#include <span>

#include "tutti/dtype.h"
#include "tutti/worker.h"

namespace tutti::detail {

/// reduce() for as many elements from the beginning as go by vectors; returns how many that were. None for what has no vectors:
/// averages of integers, products of complex numbers.
int64_t reduce_vectors(ReduceOp op, DType dtype, std::span<const char* const> sources, std::span<char* const> dsts,
                       int64_t count);

}  // namespace tutti::detail
