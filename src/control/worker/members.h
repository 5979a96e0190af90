// Who takes part: a worker's communicators and its device, by the session's layout.
#pragma once

#include <string>
#include <vector>

#include "collective/collectives.h"
#include "control/wire/layout.h"

namespace tutti::detail {

Collectives::Members world_of(const Layout& layout, int worker);
Collectives::Members group_of(const Layout& layout, int worker);
/// These workers, in this order; no key yet.  @throws UsageError  one that is none, or twice, or this worker is not there
Collectives::Members listed(const Layout& layout, int worker, const std::vector<int>& workers);
/// Of this worker, as init_ccl is told: by the place on its node. Without a list: the device that is planned for this process,
/// or else by the place, round those that there are.  @throws UsageError
/// `pci_ids`: of the devices that this process may use, by number; empty: not known. `planned`: one of them; "": none is.
int32_t device_id(const Layout& layout, int worker, const Shape& device_ids, const std::vector<std::string>& pci_ids = {},
                  const std::string& planned = {});

}  // namespace tutti::detail
