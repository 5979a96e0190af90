// What one member can see of its own operands, before it asks the others.
#include <fmt/format.h>

#include "collective/collectives.h"
#include "collective/reduce.h"

namespace tutti::detail {
namespace {

[[noreturn]] void refuse(CollectiveOp op, const std::string& why) { throw UsageError(fmt::format("{}: {}", to_string(op), why)); }

bool overlaps(const Tensor& a, const Tensor& b) {
  if (a.element_count() == 0 || b.element_count() == 0) return false;
  const char *x = static_cast<const char*>(a.data()), *y = static_cast<const char*>(b.data());
  return x < y + b.size_bytes() && y < x + a.size_bytes();
}
bool overlaps_partly(const Tensor& a, const Tensor& b) { return a.data() != b.data() && overlaps(a, b); }

/// src, or a copy of it in `copy` where writing dst would overwrite what is still to be read.
Buffer disjoint(const Tensor& src, Buffer dst, Tensor& copy) {
  const Buffer given = buffer(src);
  const char *s = given.at(0), *d = dst.at(0);
  if (given.count == 0 || dst.count == 0 || s + given.size_bytes() <= d || d + dst.size_bytes() <= s) return given;
  copy = Tensor::empty({given.count}, given.dtype, src.device());
  copy.copy_from(src);
  return buffer(copy);
}

Tensor on_host(const Tensor& tensor) {
  Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype());
  copy.copy_from(tensor);
  return copy;
}

/// The root's lists of parts, or none for equal ones, fit the whole and the root's own part.
void check_parts(const Collectives::Members& comm, const Collectives::Request& o, const Tensor& whole, const Tensor& part) {
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

/// The lists fit src and dst; they become one.
void check_uneven(const Collectives::Members& comm, Collectives::Request& o) {
  const auto size = std::ssize(comm.workers);
  if (std::ssize(o.counts) != size || std::ssize(o.dst_counts) != size)
    refuse(o.op, fmt::format("{} src_counts and {} dst_counts for {} members", o.counts.size(), o.dst_counts.size(), size));
  o.counts.insert(o.counts.end(), o.dst_counts.begin(), o.dst_counts.end());
  const auto check = [&](const char* role, int64_t first, int64_t elements) {
    int64_t total = 0;
    for (int64_t r = first; r < first + size; ++r) {
      const int64_t n = o.counts[static_cast<size_t>(r)];
      if (n < 0 || __builtin_add_overflow(total, n, &total)) refuse(o.op, fmt::format("{}_counts has an entry {}", role, n));
    }
    if (total != elements) refuse(o.op, fmt::format("{}_counts add up to {}, {} has {} elements", role, total, role, elements));
  };
  check("src", 0, o.src->element_count());
  check("dst", size, o.dst->element_count());
}

}  // namespace

void Collectives::check_tensor(CollectiveOp op, const char* role, const Tensor& tensor) const {
  if (!tensor) refuse(op, fmt::format("{} is empty (it holds no tensor)", role));
  if (tensor.device().type != dl::kCPU && tensor.device() != device_ && !stages_)
    refuse(op, fmt::format("{} lies on {}; {}", role, to_string(tensor.device()),
                           device_ccl_ ? fmt::format("init_ccl gave this worker {}", to_string(device_))
                                       : std::string("init_ccl first: 'nccl' or 'rccl', or 'mpi', by way of the host's memory")));
  if (tensor.device().type != dl::kCPU && !device_error_.empty()) refuse(op, why_lost());
  if (!tensor.is_contiguous())
    refuse(op, fmt::format("{} is a strided view, expected a row-major array "
                           "(C++: Tensor::contiguous(), Python: numpy.ascontiguousarray)",
                           role));
}

void Collectives::check_source(CollectiveOp op, const Tensor& src) const {
  check_tensor(op, "src", src);
  if (const auto* lost = src.poisoned())
    refuse(op, fmt::format("src was lost when command {} failed on worker {}; overwrite it first", lost->seq, lost->worker));
}

Signature Collectives::check(const Members& comm, Request& o) const {
  const auto size = static_cast<int64_t>(comm.workers.size());
  const bool is_root = comm.rank == o.root;
  auto same_kind = [&] {
    if (o.src->device() != o.dst->device())
      refuse(o.op, fmt::format("src lies on {}, dst on {}", to_string(o.src->device()), to_string(o.dst->device())));
    if (o.src->dtype() != o.dst->dtype())
      refuse(o.op, fmt::format("src is {}, dst is {}", to_string(o.src->dtype()), to_string(o.dst->dtype())));
  };
  auto both = [&](int64_t src_count, const char* rule) {
    check_source(o.op, *o.src);
    check_tensor(o.op, "dst", *o.dst);
    same_kind();
    if (o.src->element_count() != src_count)
      refuse(o.op,
             fmt::format("src holds {} elements, dst {}; expected {}", o.src->element_count(), o.dst->element_count(), rule));
  };
  auto reducible = [&] {
    if (!can_reduce(o.src->dtype(), o.reduce))
      refuse(o.op, fmt::format("{} has no {}", to_string(o.src->dtype()), to_string(o.reduce)));
    if (device_ccl_ && o.src->device().type != dl::kCPU && !device_ccl_->reduces(o.src->dtype(), o.reduce))
      refuse(o.op, fmt::format("ccl '{}' has no {} of {}; copy it to the host, or to another dtype", device_ccl_->name,
                               to_string(o.reduce), to_string(o.src->dtype())));
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
    case CollectiveOp::kAllToAllV:
      check_source(o.op, *o.src);
      check_tensor(o.op, "dst", *o.dst);
      same_kind();
      check_uneven(comm, o);
      if (overlaps(*o.src, *o.dst)) refuse(o.op, "src and dst overlap; they must be apart");
      break;
    case CollectiveOp::kBroadcast:
      if (is_root) both(*o.dst ? o.dst->element_count() : 0, "equal counts");
      else check_tensor(o.op, "dst", *o.dst);
      break;
    case CollectiveOp::kScatter:
      check_tensor(o.op, "dst", *o.dst);
      if (is_root) {
        check_source(o.op, *o.src);
        same_kind();
        check_parts(comm, o, *o.src, *o.dst);
      } else {
        o.counts.clear();
      }
      break;
    case CollectiveOp::kGather:
      check_source(o.op, *o.src);
      if (is_root) {
        check_tensor(o.op, "dst", *o.dst);
        same_kind();
        check_parts(comm, o, *o.dst, *o.src);
      } else {
        o.counts.clear();
      }
      break;
    case CollectiveOp::kExchange:
      if (*o.src) check_source(o.op, *o.src);
      return s;
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
    s.device_type = stages_ ? dl::kCPU : t.device().type;
  }
  return s;
}

Collectives::Operands Collectives::operands(const Members& comm, Request& request, bool is_staged,
                                            std::optional<Temporaries>& temporaries) const {
  const Signature signature = check(comm, request);
  auto& [copy, host_src, host_dst] = temporaries.emplace();
  if (is_staged) {
    if (*request.src) host_src = on_host(*request.src);
    if (*request.dst) host_dst = Tensor::empty(request.dst->shape(), request.dst->dtype());
  }
  const Tensor& from = is_staged ? host_src : *request.src;
  const Buffer dst = buffer(is_staged ? host_dst : *request.dst);
  const Buffer given = buffer(from);
  const bool in_place =
      request.op == CollectiveOp::kAllgather
          ? given.data == dst.at(comm.rank * given.count)
          : (request.op == CollectiveOp::kAllreduce || request.op == CollectiveOp::kBroadcast) && given.data == dst.data;
  return {signature, in_place ? given : disjoint(from, dst, copy), dst};
}

}  // namespace tutti::detail
