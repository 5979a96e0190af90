#pragma once

#include <string>

#include "topology/node.h"

namespace tutti::topology {

/// This machine, as far as its control group lets us use it: with no GPU and no driver, too. Or what TUTTI_TOPOLOGY=FILE says in
/// its place.
/// @throws SystemError, UsageError  the file can't be read
Node discover();

IndexSet usable_cpus();  ///< of this machine, as its control group has it; asks no driver.  @throws SystemError

/// Another one, or this one elsewhere: what `lstopo FILE.xml` writes (hwloc 2's XML; also version 1's).
/// @throws UsageError  it can't be read
Node read_topology(const std::string& file);
Node parse_topology(const std::string& xml);

}  // namespace tutti::topology
