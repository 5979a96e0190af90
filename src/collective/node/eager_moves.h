// Small messages: the data has come with the members' arrivals, so nobody waits for anybody after the agreement.
#pragma once

#include <optional>
#include <vector>

#include "agreement/arrival.h"
#include "collective/buffer.h"
#include "tutti/worker.h"

namespace tutti::detail {

/// What a member attaches at most; nullopt: such data never comes with the arrivals. Every member comes to the same answer, from
/// what all agree on; in scatter and gather if the root lists no parts.
std::optional<int64_t> attached_bytes(const Signature& signature, size_t num_members);

void eager_allreduce(Buffer dst, ReduceOp op, const std::vector<Arrival>& members);
void eager_reduce_scatter(Buffer dst, ReduceOp op, int rank, const std::vector<Arrival>& members);
void eager_allgather(Buffer dst, const std::vector<Arrival>& members);  ///< gather, too: on the root
void eager_all_to_all(Buffer dst, int rank, const std::vector<Arrival>& members);
void eager_scatter(Buffer dst, int rank, const Arrival& from);
void eager_copy(Buffer dst, const Arrival& from);

}  // namespace tutti::detail
