#pragma once

#include <memory>
#include <string_view>

#include "control/channel.h"
#include "control/exchange.h"

namespace tutti {

/// A control channel and its workers, by name: "thread", "process" (worker processes of this machine) or "mpi" (the ranks
/// of the job that tutti::run started). The one explicit table of back ends.
/// @throws UsageError  unknown name, or not possible here
std::unique_ptr<Channel> make_channel(std::string_view name, int num_workers, int num_groups, Exchange& exchange,
                                      std::chrono::milliseconds start_timeout);

}  // namespace tutti
