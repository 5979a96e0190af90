#pragma once

#include <memory>

#include "collective/communicator.h"
#include "collective/making.h"

namespace tutti::detail {

/// Collectives of GPUs by NCCL or RCCL, enqueued on their streams. Fails on all members or on none.
std::unique_ptr<Communicator> make_nccl_communicator(const Making& making);
void check_nccl(int32_t device_type);  ///< @throws SystemError  it can't be had here
bool nccl_reduces(DType dtype, ReduceOp op);

}  // namespace tutti::detail
