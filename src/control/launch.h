#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "control/channel/workers.h"
#include "control/wire/exchange.h"
#include "tutti/session.h"

namespace tutti::detail {

/// The workers of a session, by name: "thread", "process" (worker processes of this machine) or "mpi" (the ranks
/// of the job that tutti::run started). The one explicit table of back ends.
/// @throws UsageError  unknown name, or not possible here
std::unique_ptr<Workers> start_workers(std::string_view name, int num_workers, int num_groups, Exchange& exchange,
                                       std::chrono::milliseconds start_timeout);

/// A session on ranks of this process's job; `closed` runs once it is over.  @throws UsageError, TransportError
std::shared_ptr<Controller> make_job_session(SessionOptions options, const char* what, Where where, std::function<void()> closed);

}  // namespace tutti::detail
