#pragma once

#include "tutti/distributed.h"
#include "tutti/value.h"

namespace tutti::distributed {

/// On a worker, inside a command: its part of `to` from its part of `from`. Each worker of the session calls it. Tensor(): this
/// worker is not in the mesh of `to`. `part` may be anything if it is not in that of `from`.
/// @throws UsageError  `part` is not what `from` says
Tensor redistribute(const Value& part, const DTensorStructInfo& from, const DTensorStructInfo& to);

/// A worker's part, row-major in host memory: itself, or a copy.
Tensor on_host(const Tensor& part);

}  // namespace tutti::distributed
