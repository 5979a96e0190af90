// Who takes part: a worker's communicators and its device, by the session's layout.
#pragma once

#include <vector>

#include "collective/collectives.h"
#include "control/wire/layout.h"

namespace tutti::detail {

Collectives::Members world_of(const Layout& layout, int worker);
Collectives::Members group_of(const Layout& layout, int worker);
/// These workers, in this order; no key yet.  @throws UsageError  one that is none, or twice, or this worker is not there
Collectives::Members listed(const Layout& layout, int worker, const std::vector<int>& workers);
/// Of this worker, as init_ccl is told: by the place on its node; without a list the place itself.  @throws UsageError
int32_t device_id(const Layout& layout, int worker, const Shape& device_ids);

}  // namespace tutti::detail
