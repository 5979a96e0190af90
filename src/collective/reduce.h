#pragma once

#include <cstdint>
#include <span>

#include "tutti/dtype.h"
#include "tutti/worker.h"

namespace tutti::detail {

/// Whether the elements can be reduced so: all but fp8 and sub-byte types; bool by min and max, complex by sum, prod, avg.
bool can_reduce(DType dtype, ReduceOp op);

/// Each dst[i] = sources[0][i] op sources[1][i] op ..., in this order, whatever the processor (but for which NaN); a dst may be
/// one of the sources. Any alignment. float16 and bfloat16 are widened to float32 and rounded once, to nearest even; integers
/// wrap; avg divides at the end.
/// @throws UsageError  this dtype can't be reduced
void reduce(ReduceOp op, DType dtype, std::span<const char* const> sources, std::span<char* const> dsts, int64_t count);

/// float16 or bfloat16 to float32, and back, rounded to nearest even.
void widen_all(DType dtype, const void* halves, float* wide, int64_t count);
void narrow_all(DType dtype, const float* wide, void* halves, int64_t count);

/// Divides by n, as avg does at its end (integers truncate).
void divide(DType dtype, void* data, int64_t count, int n);

}  // namespace tutti::detail
