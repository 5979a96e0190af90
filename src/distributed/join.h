#pragma once

#include <string_view>
#include <vector>

#include "tutti/distributed.h"

namespace tutti::distributed {

/// The tensor whose parts by this placement are these, in the mesh's order. Parts of an axis that are not those of S[a] make it
/// ragged.
/// @throws UsageError  they do not fit together
DTensorStructInfo join(const std::vector<TensorStructInfo>& parts, const DeviceMesh& mesh, const Placement& placement);

// On the controller: the same of parts that workers have.
DRef issue_join(const DRef& parts, const DeviceMesh& mesh, const Placement& placement, Where where);
DTensorStructInfo joined_info(const DRef& joined, const DeviceMesh& mesh, Timeout timeout, Where where);  ///< synchronising

/// This worker's part. `function`: what has returned it, for the message.  @throws UsageError  it is not as `info` says
Tensor checked_part(const Value& value, const DTensorStructInfo& info, std::string_view function = {});

}  // namespace tutti::distributed
