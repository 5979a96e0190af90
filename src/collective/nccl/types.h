#pragma once

#include <cstdint>
#include <optional>

#include "collective/nccl/abi.h"
#include "tutti/dtype.h"
#include "tutti/worker.h"

namespace tutti::detail::nccl {

/// How NCCL reduces a dtype: as so many elements of a type.
struct Elements {
  Type type;
  int64_t each = 1;
};
std::optional<Elements> elements(DType dtype);  ///< none: it does not
Op op_of(ReduceOp op);

}  // namespace tutti::detail::nccl
