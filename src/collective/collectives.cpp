#include "collective/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "collective/mpi/mpi_communicator.h"
#include "collective/node/eager_moves.h"
#include "collective/node/peer_memory.h"
#include "collective/reduce.h"
#include "core/arena.h"
#include "core/env.h"
#include "device/streams.h"

namespace tutti::detail {
namespace {

bool is_on_device(const Tensor& tensor) { return tensor.device().type != dl::kCPU; }

/// Only a root has both operands of some collectives; what another member passes there counts for nothing.
void drop_ignored(const Collectives::Members& comm, Collectives::Request& o) {
  if (comm.rank == o.root) return;
  if (o.op == CollectiveOp::kBroadcast || o.op == CollectiveOp::kScatter) o.src = &Collectives::kNone;
  if (o.op == CollectiveOp::kGather) o.dst = &Collectives::kNone;
}

/// Who has moved its data has received something from every other member, and each sent only after it had read all arrivals.
/// Where a collective is only started, nothing is known.
bool hears_of_all(const Signature& s) {
  return s.device_type == dl::kCPU && s.count > 0 &&
         (s.op == CollectiveOp::kAllreduce || s.op == CollectiveOp::kReduceScatter || s.op == CollectiveOp::kAllgather ||
          s.op == CollectiveOp::kAllToAll);
}

/// Those that the root lists; equal ones when it lists none.
std::vector<int64_t> parts(int root, int64_t own, const std::vector<Arrival>& arrivals) {
  const auto& listed = arrivals[static_cast<size_t>(root)].counts;
  return listed.empty() ? std::vector<int64_t>(arrivals.size(), own) : listed;
}

}  // namespace

const Tensor Collectives::kNone;

Arrival& Collectives::arrive(const Members& comm, const CollectiveId& id, const Signature& signature,
                             const std::vector<int64_t>& counts) {
  mine_.worker = comm.workers[static_cast<size_t>(comm.rank)];
  mine_.id = id;
  mine_.signature = signature;
  if (!counts.empty() || !mine_.counts.empty()) mine_.counts = counts;
  if (mine_.members != comm.workers) mine_.members.assign(comm.workers.begin(), comm.workers.end());
  mine_.left.clear();
  mine_.attached = {};
  mine_.hears_of_all = hears_of_all(signature);
  return mine_;
}

/// Shows the members on the node where our operands lie, or what is in them.
void Collectives::offer(const Ccl& ccl, const Members& comm, Arrival& mine, const Request& o, Buffer src, Buffer dst) const {
  if (!plane_.node || mine.signature.device_type != dl::kCPU) return;
  const bool on_node = ccl.name == "local";
  if (!on_node && host_ccl_ != "auto") return;
  if (const auto bytes = attached_bytes(mine.signature, comm.workers.size()); bytes && on_node && o.counts.empty()) {
    mine.attached.has_bytes = true;
    mine.attached.in_line = *bytes <= static_cast<int64_t>(kLineBytes) && !has_parts(o.op);
    if (src.data) mine.attached.bytes = std::as_bytes(std::span(src.at(0), static_cast<size_t>(src.size_bytes())));
    if (!has_parts(o.op)) return;  // else the root may turn out to list parts
  }
  mine.attached.words = pack(operand_of(src, *plane_.node), operand_of(dst, *plane_.node));
}

void Collectives::run(const Members& comm, Request request) {
  Planned* const given = std::exchange(plans_into_, nullptr);
  drop_ignored(comm, request);
  Planned& place = given ? *given : place_of(request);
  if (place.is(comm, request) && run(place, *request.dst)) return;
  if (given) given->generation = 0;
  const bool has_device = is_on_device(*request.dst) || is_on_device(*request.src), is_staged = has_device && stages_;
  const bool on_device = has_device && !is_staged;
  Communicator* const made = on_device && device_ccl_ ? prepare(comm, *request.dst) : nullptr;
  Progress progress{.id = agreement_.next_id(comm.key), .on_device = on_device};
  std::optional<Temporaries> temporaries;
  try {
    const Operands found = operands(comm, request, is_staged, temporaries);
    const auto& [signature, src, dst] = found;
    const std::vector<Arrival>* arrivals = nullptr;
    Communicator* communicator = made;
    if (!made || !may_start_alone(request) || !agreement_.announce(progress.id, signature, comm.workers)) {
      Arrival& mine = arrive(comm, progress.id, signature, request.counts);
      HostComm& host = host_comm(comm);
      offer(*host.ccl, comm, mine, request, src, dst);
      progress.has_arrived = true;
      arrivals = &agreement_.agree(mine);
      if (!made && request.op != CollectiveOp::kBarrier) communicator = &host.communicator({plane_, comm.workers, comm.key});
    }
    progress.has_arrived = progress.has_agreed = true;
    agreement_.moves();
    if (request.op != CollectiveOp::kBarrier)
      communicator->start(
          {.op = request.op,
           .rank = comm.rank,
           .src = src,
           .dst = dst,
           .reduce = request.reduce,
           .root = request.root,
           .counts = has_parts(request.op) ? parts(request.root, signature.count, *arrivals) : std::move(request.counts),
           .read = request.read,
           .workers = comm.workers,
           .members = arrivals,
           .device = on_device ? device_ : cpu(),
           .stream = on_device ? current_stream(device_) : nullptr});
    agreement_.ends(true);
    request.dst->clear_poison();
    if (on_device) current_streams().wrote(*request.dst);
    else if (arrivals && mine_.attached.has_bytes && !temporaries->copy)
      plan(comm, request, found, *communicator, place, given != nullptr);
  } catch (...) {
    fail(request.op, *request.dst, progress);
  }
  if (temporaries->host_dst) take(temporaries->host_dst, *request.dst);
}

/// Called by a handler of the exception, which goes on.
void Collectives::fail(CollectiveOp op, const Tensor& dst, const Progress& progress) {
  const Origin here = agreement_.here();
  try {
    throw;
  } catch (const TransportError&) {
    if (progress.has_arrived) agreement_.lost();
    throw;
  } catch (const ConsequenceError& error) {
    agreement_.ends(false);
    dst.poison({error.origin.worker, error.origin.seq});
    throw;
  } catch (const std::exception& error) {
    dst.poison({here.worker, here.seq});
    if (progress.has_agreed && progress.on_device) {       // the others' work is aborted, too
      agreement_.tell_device_loss({device_since_, here});  // first: the abort takes time, and shows on the others
      lose_device(error.what());
      current_streams().lose({here.worker, here.seq});
    } else if (progress.has_agreed) {
      agreement_.broken(to_string(op), error.what());
    }
    if (progress.has_arrived) agreement_.ends(false);
    else agreement_.decline(progress.id);
    throw;
  }
}

bool Collectives::exchange(const Members& comm, const Tensor& src, const ReadSources& read) {
  if (host_comm(comm).ccl->name != std::string_view("local")) return false;
  Tensor reachable;  // one copy here is less than what all members pack otherwise
  if (const Buffer given = buffer(src);
      plane_.node && given.data && !src.poisoned() && operand_of(given, *plane_.node).where == Operand::Where::kForeign) {
    const int64_t least = static_cast<int64_t>(Arena::kLeast) / given.dtype.size_bytes();
    const Tensor memory = Tensor::empty({std::max(given.count, least)}, given.dtype);
    if (operand_of(buffer(memory), *plane_.node).in_reach()) {
      reachable = memory.slice(0, given.count);
      reachable.copy_from(src);
    }
  }
  bool has_read = false;
  std::exception_ptr failure;  // of this member alone: the others have what they read
  const ReadSources told = [&](const SourceOf& source) {
    has_read = true;
    try {
      read(source);
    } catch (...) {
      failure = std::current_exception();
    }
  };
  run(comm, {.op = CollectiveOp::kExchange, .src = reachable ? &reachable : &src, .read = &told});
  if (failure) std::rethrow_exception(failure);
  return has_read;
}

Collectives::HostComm& Collectives::host_comm(const Members& comm) {
  HostComm& host = host_comms_[comm.key];
  if (!host.ccl) host.ccl = &find_ccl(host_ccl_, plane_, comm.workers);
  return host;
}

template <class Which>
void Collectives::drop_parts(Which which) {
  const bool any_on_device =
      std::ranges::any_of(parts_, [&](const auto& part) { return which(part.second) && device_comms_.contains(part.first); });
  if (any_on_device) current_streams().finish();  // an error of theirs would not be seen
  std::erase_if(parts_, [&](const auto& part) {
    if (!which(part.second)) return false;
    host_comms_.erase(part.first);
    device_comms_.erase(part.first);
    named_.erase(part.first);
    return true;
  });
}

/// What this worker has not told yet, of parts whose members are all in `comm`: few, as a verdict carries those of all members.
std::vector<CommKey> Collectives::unneeded_parts(const Members& comm) const {
  constexpr size_t kMost = kMostSplitCounts - 2;  // one part comes with each split
  std::vector<CommKey> keys;
  if (parts_.empty()) return keys;
  const std::set<int> all(comm.workers.begin(), comm.workers.end());
  for (const auto& [key, part] : parts_) {
    const auto user = user_comms_.find(key);
    const bool is_needed = !part.handle.expired() || (user != user_comms_.end() && user->second);
    if (!is_needed && !part.is_told && keys.size() < kMost &&
        std::ranges::all_of(part.workers, [&](int worker) { return all.contains(worker); }))
      keys.push_back(key);
  }
  return keys;
}

Collectives::Members Collectives::split(const Members& comm, int color, int key) {
  const CollectiveId id = agreement_.next_id(comm.key);
  if (color < 0) {
    agreement_.decline(id);
    throw UsageError(fmt::format("split: color {} is negative", color));
  }
  const auto unneeded = unneeded_parts(comm);
  std::vector<int64_t> told{color, key};
  for (const CommKey part : unneeded) told.push_back(static_cast<int64_t>(part));
  Arrival& mine = arrive(comm, id, {.op = CollectiveOp::kSplit}, told);
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
  for (const CommKey part : unneeded) parts_[part].is_told = true;
  for (const Arrival& arrival : arrivals)
    for (size_t i = 2; i < arrival.counts.size(); ++i)
      if (const auto part = parts_.find(static_cast<CommKey>(arrival.counts[i])); part != parts_.end())
        part->second.unneeded.insert(arrival.worker);
  drop_parts([](const Part& part) { return part.unneeded.size() == part.workers.size(); });  // all its members do it here
  sub.handle = std::make_shared<char>();
  sub = named(CommKind::kPart, std::move(sub), comm.key ^ uint64_t{id.index + 1} << 20);
  parts_[sub.key] = {sub.workers, sub.handle};
  return sub;
}

Collectives::Members Collectives::named(CommKind kind, Members members, uint64_t what_else) {
  members.key = members_key(kind, members.workers, what_else);
  const auto known = named_.try_emplace(members.key, members.workers).first;
  if (known->second != members.workers)  // all lists with this key have the first member, who sees it
    throw UsageError(fmt::format("a communicator of workers {} can't be told from one of workers {}; name them in another order",
                                 fmt::join(members.workers, ","), fmt::join(known->second, ",")));
  return members;
}

void* Collectives::user_comm(const Members& comm) {
  if (!plane_.mpi_parent)
    throw UsageError(
        "interop::communicator: this session's workers are no ranks of an MPI job; use Session::create under mpirun (-n 1 will "
        "do)");
  auto& made = user_comms_[comm.key];
  if (!made) {
    run(comm, {.op = CollectiveOp::kBarrier});  // all or none
    try {
      made = make_user_comm(plane_, comm.workers, comm.key);
    } catch (const std::exception& error) {
      agreement_.broken("interop::communicator", error.what());
    }
  }
  return made.get();
}

void Collectives::init_ccl(std::string_view ccl, const Members& world, const Members& group,
                           const std::function<int32_t(int32_t type)>& device_id) {
  const Ccl* of_gpus = ccl == "auto" ? choose_gpus(world, device_id) : nullptr;
  const Ccl& row = of_gpus ? *of_gpus : find_ccl(ccl, plane_, world.workers);
  if (row.check) row.check(row.device_type);
  const bool is_host = row.device_type == dl::kCPU;
  const Device device = is_host ? cpu() : Device{row.device_type, device_id(row.device_type)};
  current_streams().make(device);
  current_streams().finish();
  run(world, {.op = CollectiveOp::kBarrier});  // nobody is inside the old ones any more
  host_comms_.clear();
  ++generation_;
  std::exchange(device_comms_, {}).clear();  // as they end, they look at those that are left
  drop_retired();
  device_error_.clear();
  host_ccl_ = !is_host || ccl == "auto" ? "auto" : row.name;
  device_ccl_ = is_host ? nullptr : &row;
  device_ = device;
  stages_ = is_host;
  device_since_ = is_host ? 0 : agreement_.here().seq;
  agreement_.restart_announcements(device_since_);
  if (is_host) return;
  device_comm(world);
  device_comm(group);
}

void Collectives::drop_retired() noexcept {
  abort_all({&retired_});
  retired_.clear();
}

void Collectives::end_session() {
  drop_retired();
  host_comms_.clear();
  ++generation_;
  std::exchange(device_comms_, {}).clear();
  user_comms_.clear();
}

void Collectives::finish_parts() {
  for (const auto& [key, part] : parts_)
    if (device_comms_.contains(key)) return current_streams().finish();
}

void Collectives::end_command() {
  if (parts_.empty()) return;
  for (const auto& [key, part] : parts_) user_comms_.erase(key);
  try {
    drop_parts([](const auto&) { return true; });
  } catch (const std::exception& error) {  // of a command that has failed already, or finish_parts() would have thrown it
    agreement_.tell_device_loss({device_since_, agreement_.here()});
    lose_device(error.what());
    drop_parts([](const auto&) { return true; });
  }
}

}  // namespace tutti::detail
