#include "collective/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "collective/mpi/mpi_communicator.h"
#include "collective/node/eager_moves.h"
#include "collective/node/peer_memory.h"
#include "collective/reduce.h"
#include "core/env.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(CollectiveOp op, const std::string& why) { throw UsageError(fmt::format("{}: {}", to_string(op), why)); }

void check_tensor(CollectiveOp op, const char* role, const Tensor& tensor) {
  if (!tensor) refuse(op, fmt::format("{} is empty (it holds no tensor)", role));
  if (tensor.device().type != dl::kCPU)
    refuse(op, fmt::format("{} lies on {}; init_ccl a ccl for that device first", role, to_string(tensor.device())));
  if (!tensor.is_contiguous())
    refuse(op, fmt::format("{} is a strided view, expected a row-major array "
                           "(C++: Tensor::contiguous(), Python: numpy.ascontiguousarray)",
                           role));
}

void check_source(CollectiveOp op, const Tensor& src) {
  check_tensor(op, "src", src);
  if (const auto* lost = src.poisoned())
    refuse(op, fmt::format("src was lost when command {} failed on worker {}; overwrite it first", lost->seq, lost->worker));
}

Buffer buffer(const Tensor& tensor) { return tensor ? Buffer{tensor.data(), tensor.element_count(), tensor.dtype()} : Buffer{}; }

bool overlaps_partly(const Tensor& a, const Tensor& b) {
  const char *x = static_cast<const char*>(a.data()), *y = static_cast<const char*>(b.data());
  return x != y && x < y + b.size_bytes() && y < x + a.size_bytes();
}

/// The root's lists of parts, or none for equal ones, fit the whole and the root's own part.
void check_parts(const Collectives::Members& comm, const Collectives::Operation& o, const Tensor& whole, const Tensor& part) {
  const auto size = static_cast<int64_t>(comm.workers.size());
  if (o.counts.empty()) {
    if (whole.element_count() % size != 0)
      refuse(o.op, fmt::format("{} elements do not divide by {} members; pass counts", whole.element_count(), size));
    if (whole.element_count() / size != part.element_count())
      refuse(o.op, fmt::format("{} elements for {} members, expected {} elements in the root's own part, which has {}",
                               whole.element_count(), size, whole.element_count() / size, part.element_count()));
    return;
  }
  int64_t total = 0;
  for (int64_t n : o.counts) {
    if (n < 0) refuse(o.op, fmt::format("counts has a negative entry {}", n));
    total += n;
  }
  if (std::ssize(o.counts) != size || total != whole.element_count())
    refuse(o.op, fmt::format("{} counts add up to {}, expected {} adding up to {}", o.counts.size(), total, size,
                             whole.element_count()));
}

/// Who has moved its data has received something from every other member, and each sent only after it had read all arrivals.
bool hears_of_all(const Signature& s) {
  return s.count > 0 && (s.op == CollectiveOp::kAllreduce || s.op == CollectiveOp::kReduceScatter ||
                         s.op == CollectiveOp::kAllgather || s.op == CollectiveOp::kAllToAll);
}

/// Those that the root lists; equal ones when it lists none.
std::vector<int64_t> parts(int root, int64_t own, const std::vector<Arrival>& arrivals) {
  const auto& listed = arrivals[static_cast<size_t>(root)].counts;
  return listed.empty() ? std::vector<int64_t>(arrivals.size(), own) : listed;
}

}  // namespace

const Tensor Collectives::kNone;

Signature Collectives::check(const Members& comm, Operation& o) const {
  const auto size = static_cast<int64_t>(comm.workers.size());
  const bool is_root = comm.rank == o.root;
  auto same_dtype = [&] {
    if (o.src->dtype() != o.dst->dtype())
      refuse(o.op, fmt::format("src is {}, dst is {}", to_string(o.src->dtype()), to_string(o.dst->dtype())));
  };
  auto both = [&](int64_t src_count, const char* rule) {
    check_source(o.op, *o.src);
    check_tensor(o.op, "dst", *o.dst);
    same_dtype();
    if (o.src->element_count() != src_count)
      refuse(o.op,
             fmt::format("src holds {} elements, dst {}; expected {}", o.src->element_count(), o.dst->element_count(), rule));
  };
  auto reducible = [&] {
    if (!can_reduce(o.src->dtype(), o.reduce))
      refuse(o.op, fmt::format("{} has no {}", to_string(o.src->dtype()), to_string(o.reduce)));
  };
  if (o.root < 0 || o.root >= size) refuse(o.op, fmt::format("root {} of {} members", o.root, size));
  Signature s{.op = o.op, .reduce = o.reduce, .root = o.root};
  switch (o.op) {
    case CollectiveOp::kAllreduce:
      both(*o.dst ? o.dst->element_count() : 0, "equal counts");
      reducible();
      if (overlaps_partly(*o.src, *o.dst)) refuse(o.op, "src and dst overlap in part; they must be the same or apart");
      break;
    case CollectiveOp::kReduceScatter:
      both(*o.dst ? o.dst->element_count() * size : 0, "count(src) = members * count(dst)");
      reducible();
      break;
    case CollectiveOp::kAllgather:
      check_source(o.op, *o.src);
      both(*o.dst && o.dst->element_count() == o.src->element_count() * size ? o.src->element_count() : -1,
           "count(dst) = members * count(src)");
      break;
    case CollectiveOp::kAllToAll:
      both(*o.dst ? o.dst->element_count() : 0, "equal counts");
      if (o.src->element_count() % size != 0)
        refuse(o.op, fmt::format("{} elements do not divide by {} members", o.src->element_count(), size));
      break;
    case CollectiveOp::kBroadcast:
      if (is_root) both(*o.dst ? o.dst->element_count() : 0, "equal counts");
      else check_tensor(o.op, "dst", *o.dst), o.src = &kNone;
      break;
    case CollectiveOp::kScatter:
      check_tensor(o.op, "dst", *o.dst);
      if (is_root) {
        check_source(o.op, *o.src);
        same_dtype();
        check_parts(comm, o, *o.src, *o.dst);
      } else {
        o.src = &kNone;
        o.counts.clear();
      }
      break;
    case CollectiveOp::kGather:
      check_source(o.op, *o.src);
      if (is_root) {
        check_tensor(o.op, "dst", *o.dst);
        same_dtype();
        check_parts(comm, o, *o.dst, *o.src);
      } else {
        o.dst = &kNone;
        o.counts.clear();
      }
      break;
    case CollectiveOp::kSendRecv:
      if (*o.src) check_source(o.op, *o.src);
      else check_tensor(o.op, "dst", *o.dst);
      break;
    case CollectiveOp::kBarrier:
    case CollectiveOp::kSplit: break;
  }
  const bool counts_own_src =
      o.op == CollectiveOp::kGather || o.op == CollectiveOp::kAllgather || (o.op == CollectiveOp::kSendRecv && *o.src);
  if (const Tensor& t = counts_own_src ? *o.src : *o.dst) {
    s.count = t.element_count();
    s.dtype = t.dtype();
    s.device_type = t.device().type;
  }
  return s;
}

Arrival& Collectives::arrive(const Members& comm, const CollectiveId& id, const Signature& signature,
                             const std::vector<int64_t>& counts) {
  mine_.worker = comm.workers[static_cast<size_t>(comm.rank)];
  mine_.id = id;
  mine_.signature = signature;
  mine_.counts = counts;
  mine_.members.assign(comm.workers.begin(), comm.workers.end());
  mine_.left.clear();
  mine_.src = mine_.dst = {};
  mine_.is_eager = false;
  mine_.eager = {};
  mine_.hears_of_all = hears_of_all(signature);
  return mine_;
}

/// Shows the members on the node where our operands lie, or what is in them.
void Collectives::offer(const Members& comm, Arrival& mine, const Operation& o, Buffer src, Buffer dst) const {
  if (!plane_.node) return;
  const bool on_node = resolve_ccl(ccl_, plane_, comm.workers) == "local";
  if (!on_node && ccl_ != "auto") return;
  if (on_node && o.counts.empty() && is_eager(o.op, mine.signature, comm.workers.size())) {
    mine.is_eager = true;
    if (src.data) mine.eager = std::as_bytes(std::span(src.at(0), static_cast<size_t>(src.size_bytes())));
    if (!has_parts(o.op)) return;  // else the root may turn out to list parts
  }
  mine.src = operand_of(src, *plane_.node);
  mine.dst = operand_of(dst, *plane_.node);
}

void Collectives::run(const Members& comm, Operation operation) {
  const CollectiveId id = agreement_.next_id(comm.key);
  bool has_arrived = false, has_agreed = false;
  Tensor copy;
  try {
    const Signature signature = check(comm, operation);
    // what may fail for want of memory comes before the agreement
    const Buffer dst = buffer(*operation.dst);
    const Buffer given = buffer(*operation.src);
    const bool in_place =
        operation.op == CollectiveOp::kAllgather
            ? given.data == dst.at(comm.rank * given.count)
            : (operation.op == CollectiveOp::kAllreduce || operation.op == CollectiveOp::kBroadcast) && given.data == dst.data;
    const Buffer src = in_place ? given : disjoint(given, dst, copy);
    Arrival& mine = arrive(comm, id, signature, operation.counts);
    offer(comm, mine, operation, src, dst);
    has_arrived = true;
    const auto& arrivals = agreement_.agree(mine);
    has_agreed = true;
    agreement_.moves();
    move(comm, operation, src, dst, arrivals);
    agreement_.ends(true);
    operation.dst->clear_poison();
  } catch (const TransportError&) {
    if (has_arrived) agreement_.lost();
    throw;
  } catch (const ConsequenceError& error) {
    agreement_.ends(false);
    operation.dst->poison({error.origin.worker, error.origin.seq});
    throw;
  } catch (const std::exception& error) {
    operation.dst->poison({agreement_.here().worker, agreement_.here().seq});
    if (has_agreed) agreement_.broken(to_string(operation.op), error.what());
    if (has_arrived) agreement_.ends(false);
    else agreement_.decline(id);
    throw;
  }
}

void Collectives::move(const Members& comm, const Operation& o, Buffer src, Buffer dst, const std::vector<Arrival>& arrivals) {
  if (o.op == CollectiveOp::kBarrier) return;
  Communicator& back_end = this->back_end(comm);
  switch (o.op) {
    case CollectiveOp::kAllreduce: return back_end.allreduce(src, dst, o.reduce, arrivals);
    case CollectiveOp::kReduceScatter: return back_end.reduce_scatter(src, dst, o.reduce, arrivals);
    case CollectiveOp::kAllgather: return back_end.allgather(src, dst, arrivals);
    case CollectiveOp::kBroadcast: return back_end.broadcast(src, dst, o.root, arrivals);
    case CollectiveOp::kScatter: return back_end.scatter(src, dst, o.root, parts(o.root, dst.count, arrivals), arrivals);
    case CollectiveOp::kGather: return back_end.gather(src, dst, o.root, parts(o.root, src.count, arrivals), arrivals);
    case CollectiveOp::kAllToAll: return back_end.all_to_all(src, dst, arrivals);
    case CollectiveOp::kSendRecv: return *o.src ? back_end.send(src, arrivals) : back_end.recv(dst, arrivals);
    case CollectiveOp::kBarrier:
    case CollectiveOp::kSplit: return;
  }
}

Communicator& Collectives::back_end(const Members& comm) {
  auto& made = communicators_[comm.key];
  if (!made) made = make_communicator(ccl_, plane_, comm.workers, comm.key);
  return *made;
}

Collectives::Members Collectives::split(const Members& comm, int color, int key) {
  const CollectiveId id = agreement_.next_id(comm.key);
  if (color < 0) {
    agreement_.decline(id);
    refuse(CollectiveOp::kSplit, fmt::format("color {} is negative", color));
  }
  SubSlot slot;
  try {
    slot = agreement_.free_slot();
  } catch (const UsageError&) {
    agreement_.decline(id);
    throw;
  }
  Arrival& mine = arrive(comm, id, {.op = CollectiveOp::kSplit}, {color, key, slot.number, slot.use});
  std::vector<Arrival> arrivals;
  try {
    arrivals = agreement_.agree(mine);
  } catch (...) {
    agreement_.ends(false);
    throw;
  }
  agreement_.ends(true);
  std::vector<std::tuple<int64_t, size_t>> order;  // (key, rank)
  for (size_t r = 0; r < arrivals.size(); ++r)
    if (arrivals[r].counts.at(0) == color) order.emplace_back(arrivals[r].counts.at(1), r);
  std::sort(order.begin(), order.end());
  Members sub;
  for (const auto& [unused, r] : order) {
    if (static_cast<int>(r) == comm.rank) sub.rank = static_cast<int>(sub.workers.size());
    sub.workers.push_back(comm.workers[r]);
  }
  const Arrival& leader = arrivals[std::get<1>(order.front())];
  const auto slot_number = static_cast<int>(leader.counts.at(2));
  sub.key = sub_key(leader.worker, slot_number, static_cast<uint32_t>(leader.counts.at(3)));
  if (sub.rank == 0) sub.slot = std::move(slot.taken);  // as long as the leader has a handle
  const CommKey first_use = sub_key(leader.worker, slot_number, 0);
  drop(first_use, first_use + kSubUses);
  agreement_.forget(first_use, first_use + kSubUses);
  return sub;
}

void* Collectives::user_comm(const Members& comm) {
  if (!plane_.mpi_parent)
    throw UsageError(
        "interop::communicator: this session's workers are no ranks of an MPI job; use Session::create under mpirun (-n 1 will "
        "do)");
  auto& made = user_comms_[comm.key];
  if (!made.comm) {
    run(comm, {.op = CollectiveOp::kBarrier});  // all or none
    try {
      made = {make_user_comm(plane_, comm.workers, comm.key), comm.slot};
    } catch (const std::exception& error) {
      agreement_.broken("interop::communicator", error.what());
    }
  }
  return made.comm.get();
}

void Collectives::init_ccl(std::string_view ccl, const Members& world) {
  if (ccl != "auto") ccl = resolve_ccl(ccl, plane_, world.workers);
  run(world, {.op = CollectiveOp::kBarrier});  // nobody is inside the old ones any more
  communicators_.clear();
  ccl_ = ccl;
}

void Collectives::end_command() {
  const auto has_subs = [](const auto& comms) { return !comms.empty() && comms.rbegin()->first >= sub_key(0, 0, 0); };
  if (has_subs(communicators_) || has_subs(user_comms_)) drop(sub_key(0, 0, 0), UINT64_MAX);
}

void Collectives::drop(CommKey first, CommKey end) {
  communicators_.erase(communicators_.lower_bound(first), communicators_.lower_bound(end));
  user_comms_.erase(user_comms_.lower_bound(first), user_comms_.lower_bound(end));
}

}  // namespace tutti
