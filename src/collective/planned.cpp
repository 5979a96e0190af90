// What is run again with the same operands.
#include <new>

#include "collective/collectives.h"

namespace tutti::detail {

Collectives::Planned& Collectives::place_of(const Request& request) {
  const Tensor& operand = *request.dst ? *request.dst : *request.src;
  const size_t address = reinterpret_cast<uintptr_t>(operand.data()) / 64;
  return planned_[(address ^ address / 64 ^ static_cast<size_t>(request.op)) % planned_.size()];  // many begin at a page
}

bool Collectives::Planned::is(const Members& comm, const Request& request) const {
  const auto is_same = [](const Buffer& known, const Tensor& tensor) {
    return known.data == tensor.data() && known.count == tensor.element_count() && known.dtype == tensor.dtype() &&
           tensor.is_contiguous() && tensor.device().type == dl::kCPU;
  };
  const Signature& signature = mine.signature;
  return generation != 0 && key == comm.key && signature.op == request.op && signature.reduce == request.reduce &&
         signature.root == request.root && request.counts.empty() && is_same(dst, *request.dst) && is_same(src, *request.src) &&
         !request.src->poisoned();
}

/// At once, or the second time: most are asked for once.
void Collectives::plan(const Members& comm, const Request& request, const Operands& operands, Communicator& communicator,
                       Planned& place, bool at_once) noexcept try {
  if (has_parts(request.op) || kind(comm.key) == CommKind::kPart) return;
  const bool is_second = place.dst.data == operands.dst.data && place.src.data == operands.src.data && place.key == comm.key;
  place.generation = 0;
  place.key = comm.key;
  place.src = operands.src;
  place.dst = operands.dst;
  if (!is_second && !at_once) return;
  place.rank = comm.rank;
  place.workers = comm.workers;
  place.reduce = request.reduce;
  place.communicator = &communicator;
  place.mine = mine_;
  place.generation = generation_;
} catch (const std::bad_alloc&) {  // then without
}

bool Collectives::run(Planned& planned, const Tensor& dst) {
  if (planned.generation != generation_) return false;
  Arrival& mine = planned.mine;
  Progress progress{.id = agreement_.next_id(planned.key), .has_arrived = true};
  mine.id = progress.id;
  try {
    const auto& arrivals = agreement_.agree(mine);
    progress.has_agreed = true;
    agreement_.moves();
    planned.communicator->start({.op = mine.signature.op,
                                 .rank = planned.rank,
                                 .src = planned.src,
                                 .dst = planned.dst,
                                 .reduce = planned.reduce,
                                 .root = mine.signature.root,
                                 .workers = planned.workers,
                                 .members = &arrivals});
    agreement_.ends(true);
    dst.clear_poison();
  } catch (...) {
    fail(mine.signature.op, dst, progress);
  }
  return true;
}

}  // namespace tutti::detail
