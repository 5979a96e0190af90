#pragma once

#include <string>

namespace tutti::detail::nccl {

/// What NCCL's RAS service says of the job's communicators and processes: since NCCL 2.24 one process of a node answers at
/// NCCL_RAS_ADDR (localhost:28028). Empty: nobody answers within some seconds. Any thread; no worker has to come to it.
std::string ras_status();

}  // namespace tutti::detail::nccl
