#pragma once

#include "tutti/value.h"

namespace tutti::detail {

/// The source of a copy_to_worker_0 as it lies in the Exchange. TUTTI_CHECK_HOST_ARRAYS=1: a hash of its elements goes along,
/// so that a program which changes the array before the copy has been made is told so.
Value pack_host_array(const Tensor& host);
Tensor unpack_host_array(const Value& packed);  ///< @throws UsageError  the array has changed

}  // namespace tutti::detail
