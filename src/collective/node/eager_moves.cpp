#include "collective/node/eager_moves.h"

#include <algorithm>

#include "collective/reduce.h"

namespace tutti::detail {
namespace {

const char* data_of(const Arrival& member) { return reinterpret_cast<const char*>(member.attached.bytes.data()); }

void reduce_at(Buffer dst, ReduceOp op, int64_t first, const std::vector<Arrival>& members) {
  constexpr size_t kOften = 16;
  const char* few[kOften];
  std::vector<const char*> many;
  if (members.size() > kOften) many.resize(members.size());
  const std::span<const char*> sources = many.empty() ? std::span(few, members.size()) : std::span(many);
  for (size_t r = 0; r < members.size(); ++r) sources[r] = data_of(members[r]) + first * dst.dtype.size_bytes();
  char* const to[] = {dst.at(0)};
  reduce(op, dst.dtype, sources, to, dst.count);
}

void copy_part(Buffer dst, int64_t to, const Arrival& from, int64_t first, int64_t count) {
  copy(dst.at(to), data_of(from) + first * dst.dtype.size_bytes(), count * dst.dtype.size_bytes());
}

}  // namespace

std::optional<int64_t> attached_bytes(const Signature& s, size_t num_members) {
  const auto most = static_cast<int64_t>(kAttachedBytes);
  const int64_t bytes = s.count * s.dtype.size_bytes();  // of an array that is there
  switch (s.op) {
    case CollectiveOp::kAllreduce:
    case CollectiveOp::kAllgather:
    case CollectiveOp::kBroadcast:
    case CollectiveOp::kAllToAll:
    case CollectiveOp::kSendRecv:
    case CollectiveOp::kGather: return bytes <= most ? std::optional(bytes) : std::nullopt;
    case CollectiveOp::kReduceScatter:
    case CollectiveOp::kScatter: {
      const auto members = static_cast<int64_t>(num_members);
      return bytes <= most / members ? std::optional(bytes * members) : std::nullopt;
    }
    case CollectiveOp::kAllToAllV:
    case CollectiveOp::kExchange:
    case CollectiveOp::kBarrier:
    case CollectiveOp::kSplit: return std::nullopt;
  }
  return std::nullopt;
}

void eager_allreduce(Buffer dst, ReduceOp op, const std::vector<Arrival>& members) { reduce_at(dst, op, 0, members); }

void eager_reduce_scatter(Buffer dst, ReduceOp op, int rank, const std::vector<Arrival>& members) {
  reduce_at(dst, op, rank * dst.count, members);
}

void eager_allgather(Buffer dst, const std::vector<Arrival>& members) {
  const int64_t part = dst.count / std::ssize(members);
  for (int64_t r = 0; r < std::ssize(members); ++r) copy_part(dst, r * part, members[static_cast<size_t>(r)], 0, part);
}

void eager_all_to_all(Buffer dst, int rank, const std::vector<Arrival>& members) {
  const int64_t part = dst.count / std::ssize(members);
  for (int64_t r = 0; r < std::ssize(members); ++r) copy_part(dst, r * part, members[static_cast<size_t>(r)], rank * part, part);
}

void eager_scatter(Buffer dst, int rank, const Arrival& from) { copy_part(dst, 0, from, rank * dst.count, dst.count); }

void eager_copy(Buffer dst, const Arrival& from) { copy_part(dst, 0, from, 0, dst.count); }

}  // namespace tutti::detail
