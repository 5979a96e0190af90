// The contract of every back end, of Communicator itself: members agree, then start() moves the bytes. No Comm and no
// Collectives, which check operands and choose the back end, are in between. Each member knows from rank, root and size what it
// must find.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>

#include "collective/ccl.h"
#include "collective/node/eager_moves.h"
#include "collective/node/peer_memory.h"
#include "control/worker/worker.h"
#include "device/streams.h"
#include "support/delayed_device.h"
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace tutti_test;

constexpr double kUntouched = -1;

double value(int rank, int64_t i) { return rank * 1e6 + static_cast<double>(i); }

/// Float64 in the worker's memory: its arena, other memory of the process (`foreign`), or its device. One element before and one
/// behind are to stay as they are.
class Memory {
 public:
  Memory(const std::vector<double>& values, bool foreign) : before_(values), kept_{kUntouched} {
    kept_.insert(kept_.end(), values.begin(), values.end());
    kept_.push_back(kUntouched);
    const auto count = static_cast<int64_t>(kept_.size());
    const Tensor host = Tensor::from<double>(kept_);
    if (worker::device() != cpu()) {
      tensor_ = Tensor::empty({count}, kFloat64, worker::device());
      tensor_.copy_from(host);
    } else if (foreign) {
      tensor_ = Tensor::wrap(kept_.data(), {count}, kFloat64);
    } else {
      tensor_ = host;
    }
  }
  Buffer buffer() const { return before_.empty() ? Buffer{.dtype = kFloat64} : part(0, std::ssize(before_)); }
  Buffer part(int64_t first, int64_t count) const {
    return {.data = static_cast<char*>(tensor_.data()) + (1 + first) * kFloat64.size_bytes(), .count = count, .dtype = kFloat64};
  }
  std::vector<double> values() const {  // of a device: once its stream is done
    Tensor host = Tensor::empty(tensor_.shape(), kFloat64);
    host.copy_from(tensor_);
    const auto span = host.values<double>();
    if (span.front() != kUntouched || span.back() != kUntouched) throw std::logic_error("written beside the operand");
    return {span.begin() + 1, span.end() - 1};
  }
  const std::vector<double>& before() const { return before_; }

 private:
  std::vector<double> before_, kept_;
  Tensor tensor_;
};

std::vector<double> values_of(int rank, int64_t count, int64_t first = 0) {
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value(rank, first + i);
  return values;
}
std::vector<double> untouched(int64_t count) { return std::vector<double>(static_cast<size_t>(count), kUntouched); }
void append(std::vector<double>& to, const std::vector<double>& more) { to.insert(to.end(), more.begin(), more.end()); }

/// One member's end of a communicator that the test has made.
class Member {
 public:
  enum class Foreign { kNone, kAll, kOdd };  ///< whose memory is out of the others' reach
  Member(const std::string& ccl, std::vector<int> workers, Foreign foreign, bool eager)
      : workers_(std::move(workers)), eager_(eager), plane_(worker_.collectives().data_plane()) {
    const auto at = std::find(workers_.begin(), workers_.end(), worker_.id());
    rank_ = at == workers_.end() ? -1 : static_cast<int>(at - workers_.begin());
    if (rank_ < 0) return;
    mode_ = foreign;
    foreign_ = foreign == Foreign::kAll || (foreign == Foreign::kOdd && rank_ % 2 == 1);
    key_ = members_key(CommKind::kNamed, workers_, std::hash<std::string>()(ccl) + static_cast<size_t>(foreign) * 2 + eager);
    const auto all_gather = [this](std::span<const std::byte> mine, std::span<std::byte> all) {
      const auto src = Tensor::wrap(const_cast<std::byte*>(mine.data()), {std::ssize(mine)}, kUInt8);
      worker::comm(workers_).allgather(src, Tensor::wrap(all.data(), {std::ssize(all)}, kUInt8));
    };
    row_ = &find_ccl(ccl, plane_, workers_);
    worker::comm(workers_).barrier();  // all or none: to make it is collective
    communicator_ = row_->make({plane_, workers_, key_, worker::device(), all_gather});
  }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(workers_.size()); }

  void check_all() {
    if (rank_ < 0) return;                            // the others are among themselves
    for (const int64_t n : {0, 1, 5, 1025, 33001}) {  // bytes with the arrivals, one piece of staging memory, several
      n_ = n;
      for (const bool in_place : {false, true}) allreduce(in_place), allgather(in_place);
      reduce_scatter();
      all_to_all();
      all_to_all_v();
      if (worker::device() == cpu()) exchange();
      for (const int root : std::set<int>{0, size() / 2, size() - 1}) {
        for (const bool in_place : {false, true}) broadcast(root, in_place);
        for (const bool even : {true, false}) scatter(root, even), gather(root, even);
      }
      if (size() == 2) send_recv();
    }
    n_ = 140001;  // from 1 MiB on a broadcast over several nodes has a way of its own
    for (const bool in_place : {false, true}) broadcast(size() - 1, in_place);
    if (const std::string error = communicator_->poll_error(); !error.empty()) throw std::logic_error("poll_error: " + error);
  }

 private:
  /// What Collectives does once it has checked the operands.
  void start(CollectiveOp op, int64_t count, Buffer src, Buffer dst, ReduceOp reduce = ReduceOp::kSum, int root = 0,
             std::vector<int64_t> counts = {}, bool lists_counts = false, const ReadSources* read = nullptr) {
    Agreement& agreement = worker_.agreement();
    Arrival mine{.worker = worker_.id(),
                 .id = agreement.next_id(key_),
                 .signature = {.op = op, .reduce = reduce, .dtype = kFloat64, .root = root, .count = count}};
    mine.signature.device_type = worker::device().type;
    mine.members.assign(workers_.begin(), workers_.end());
    if (lists_counts) mine.counts = counts;
    const bool on_node = row_->name == "local";
    if (plane_.node && worker::device() == cpu() && row_->name != "mpi") {
      const auto bytes = attached_bytes(mine.signature, workers_.size());
      if (on_node && eager_ && !lists_counts && bytes) {
        mine.attached.has_bytes = true;
        mine.attached.in_line = *bytes <= static_cast<int64_t>(kLineBytes) && !has_parts(op);
        if (src.data) mine.attached.bytes = std::as_bytes(std::span(src.at(0), static_cast<size_t>(src.size_bytes())));
      }
      mine.attached.words = pack(operand_of(src, *plane_.node), operand_of(dst, *plane_.node));
    }
    const std::vector<Arrival>* members = nullptr;
    const bool alone = row_->starts_alone && !has_parts(op) && op != CollectiveOp::kAllToAllV;
    try {
      if (!alone || !agreement.announce(mine.id, mine.signature, workers_)) members = &agreement.agree(mine);
    } catch (...) {
      agreement.ends(false);
      throw;
    }
    agreement.moves();
    try {
      communicator_->start({.op = op,
                            .rank = rank_,
                            .src = src,
                            .dst = dst,
                            .reduce = reduce,
                            .root = root,
                            .counts = std::move(counts),
                            .read = read,
                            .workers = workers_,
                            .members = members,
                            .device = worker::device(),
                            .stream = worker::device() == cpu() ? nullptr : current_stream(worker::device())});
    } catch (const TransportError&) {
      throw;
    } catch (const std::exception& error) {
      agreement.broken(to_string(op), error.what());
    }
    agreement.ends(true);
  }

  void expect(const char* what, const std::vector<double>& have, const std::vector<double>& want) const {
    if (have == want) return;
    size_t i = 0;
    while (i < std::min(have.size(), want.size()) && have[i] == want[i]) ++i;
    throw std::logic_error(std::string(what) + " of " + std::to_string(n_) + " among " + std::to_string(size()) + ", rank " +
                           std::to_string(rank_) + ": element " + std::to_string(i) + " is " +
                           (i < have.size() ? std::to_string(have[i]) : "missing") + ", expected " +
                           (i < want.size() ? std::to_string(want[i]) : "none"));
  }

  void unchanged(const std::string& what, const Memory& src) const {
    expect((what + "'s source").c_str(), src.values(), src.before());
  }

  std::vector<double> sum(int64_t first, int64_t count) const {
    std::vector<double> all = values_of(0, count, first);
    for (int r = 1; r < size(); ++r)
      for (int64_t i = 0; i < count; ++i) all[static_cast<size_t>(i)] += value(r, first + i);
    return all;
  }

  void allreduce(bool in_place) {
    const Memory src(values_of(rank_, n_), foreign_), dst(untouched(n_), foreign_);
    const Memory& to = in_place ? src : dst;
    start(CollectiveOp::kAllreduce, n_, src.buffer(), to.buffer());
    expect("allreduce", to.values(), sum(0, n_));
    if (!in_place) unchanged("allreduce", src);
    std::vector<double> mine(static_cast<size_t>(n_)), most(mine.size(), size() - 1);
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<double>((static_cast<size_t>(rank_) + i) % workers_.size());
    const Memory both(mine, foreign_);
    start(CollectiveOp::kAllreduce, n_, both.buffer(), both.buffer(), ReduceOp::kMax);
    expect("allreduce max", both.values(), most);
  }

  void reduce_scatter() {
    const Memory src(values_of(rank_, n_ * size()), foreign_), dst(untouched(n_), foreign_);
    start(CollectiveOp::kReduceScatter, n_, src.buffer(), dst.buffer());
    expect("reduce_scatter", dst.values(), sum(n_ * rank_, n_));
    unchanged("reduce_scatter", src);
  }

  void allgather(bool in_place) {
    std::vector<double> all, before = untouched(n_ * size());
    for (int r = 0; r < size(); ++r) append(all, values_of(r, n_));
    if (in_place)
      for (int64_t i = 0; i < n_; ++i) before[static_cast<size_t>(rank_ * n_ + i)] = value(rank_, i);
    const Memory src(values_of(rank_, n_), foreign_), dst(before, foreign_);
    start(CollectiveOp::kAllgather, n_, in_place ? dst.part(rank_ * n_, n_) : src.buffer(), dst.buffer());
    expect("allgather", dst.values(), all);
    unchanged("allgather", src);
  }

  void all_to_all() {
    std::vector<double> all;
    for (int r = 0; r < size(); ++r) append(all, values_of(r, n_, n_ * rank_));
    const Memory src(values_of(rank_, n_ * size()), foreign_), dst(untouched(n_ * size()), foreign_);
    start(CollectiveOp::kAllToAll, n_ * size(), src.buffer(), dst.buffer());
    expect("all_to_all", dst.values(), all);
    unchanged("all_to_all", src);
  }

  /// Some members send nothing to some.
  int64_t part(int from, int to) const { return n_ / 2 * ((from + 2 * to) % 3); }

  void all_to_all_v() {
    std::vector<int64_t> counts;
    std::vector<double> sent, all;
    for (int to = 0; to < size(); ++to) {
      counts.push_back(part(rank_, to));
      append(sent, values_of(rank_, part(rank_, to), 1000 * to));
    }
    for (int from = 0; from < size(); ++from) {
      counts.push_back(part(from, rank_));
      append(all, values_of(from, part(from, rank_), 1000 * rank_));
    }
    const Memory src(sent, foreign_), dst(untouched(std::ssize(all)), foreign_);
    start(CollectiveOp::kAllToAllV, std::ssize(all), src.buffer(), dst.buffer(), ReduceOp::kSum, 0, counts, true);
    expect("all_to_all with counts", dst.values(), all);
    unchanged("all_to_all with counts", src);
  }

  /// The last member has nothing to read. All read or none does; on a node they do if all can be reached.
  void exchange() {
    const bool has_some = rank_ < size() - 1 || size() == 1;
    if (n_ == 0) return;
    const Memory src(values_of(rank_, has_some ? n_ : 0), foreign_);
    std::vector<double> seen, all;
    const ReadSources read = [&](const SourceOf& source_of) {
      for (int r = 0; r < std::max(size() - 1, 1); ++r) {
        const auto* from = reinterpret_cast<const double*>(source_of(r, 0, n_ * 8));
        seen.insert(seen.end(), from, from + n_);
      }
    };
    for (int r = 0; r < std::max(size() - 1, 1); ++r) append(all, values_of(r, n_));
    start(CollectiveOp::kExchange, 0, has_some ? src.buffer() : Buffer{.dtype = kFloat64}, {}, ReduceOp::kSum, 0, {}, false,
          &read);
    const bool on_node = row_->name == std::string_view("local") && plane_.node;
    const bool all_in_arenas = mode_ == Foreign::kNone || (mode_ == Foreign::kOdd && size() < 3);
    const bool in_reach = on_node && (plane_.node->one_process || (all_in_arenas && n_ * 8 >= 16 << 10));
    expect("exchange", seen, in_reach ? all : std::vector<double>());
    unchanged("exchange", src);
  }

  void broadcast(int root, bool in_place) {
    const Memory src(rank_ == root ? values_of(root, n_) : untouched(n_), foreign_), dst(untouched(n_), foreign_);
    const Memory& to = in_place ? src : dst;
    start(CollectiveOp::kBroadcast, n_, rank_ == root ? src.buffer() : Buffer{.dtype = kFloat64}, to.buffer(), ReduceOp::kSum,
          root);
    expect("broadcast", to.values(), values_of(root, n_));
    if (!in_place) unchanged("broadcast", src);
  }

  std::vector<int64_t> parts(bool even) const {
    std::vector<int64_t> counts;
    for (int r = 0; r < size(); ++r) counts.push_back(even ? n_ : n_ / 3 * (r % 3));  // the first gets nothing
    return counts;
  }

  void scatter(int root, bool even) {
    const std::vector<int64_t> counts = parts(even);
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0}), own = counts[static_cast<size_t>(rank_)];
    const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank_, int64_t{0});
    const Memory src(rank_ == root ? values_of(root, all) : std::vector<double>(), foreign_), dst(untouched(own), foreign_);
    start(CollectiveOp::kScatter, own, rank_ == root ? src.buffer() : Buffer{.dtype = kFloat64}, dst.buffer(), ReduceOp::kSum,
          root, counts, !even && rank_ == root);
    expect("scatter", dst.values(), values_of(root, own, before));
    unchanged("scatter", src);
  }

  void gather(int root, bool even) {
    const std::vector<int64_t> counts = parts(even);
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0}), own = counts[static_cast<size_t>(rank_)];
    std::vector<double> wanted;
    for (int r = 0; r < size(); ++r) append(wanted, values_of(r, counts[static_cast<size_t>(r)]));
    const Memory src(values_of(rank_, own), foreign_), dst(rank_ == root ? untouched(all) : std::vector<double>(), foreign_);
    start(CollectiveOp::kGather, own, src.buffer(), rank_ == root ? dst.buffer() : Buffer{.dtype = kFloat64}, ReduceOp::kSum,
          root, counts, !even && rank_ == root);
    if (rank_ == root) expect("gather", dst.values(), wanted);
    unchanged("gather", src);
  }

  void send_recv() {
    const Memory memory(rank_ == 0 ? values_of(0, n_) : untouched(n_), foreign_);
    const Buffer none{.dtype = kFloat64};
    start(CollectiveOp::kSendRecv, n_, rank_ == 0 ? memory.buffer() : none, rank_ == 1 ? memory.buffer() : none);
    expect("send_recv", memory.values(), values_of(0, n_));
  }

  Worker& worker_ = *Worker::current();
  std::vector<int> workers_;
  Foreign mode_ = Foreign::kNone;
  bool foreign_ = false, eager_;
  DataPlane plane_;
  int rank_ = -1;
  CommKey key_ = 0;
  const Ccl* row_ = nullptr;
  std::unique_ptr<Communicator> communicator_;
  int64_t n_ = 0;
};

/// All, in reverse; a subset in an order of its own; one alone.
std::vector<std::vector<int>> member_lists(int count) {
  std::vector<int> all(static_cast<size_t>(count)), odd;
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<int>> lists{all};
  if (count > 1) lists.push_back({all.rbegin(), all.rend()});
  if (count > 2) lists.push_back({count - 1, 0});
  lists.push_back({count - 1});
  return lists;
}

/// More plans than `Collectives` has places, each where its caller wants it.
void check_plans() {
  auto& collectives = Worker::current()->collectives();
  const Comm world = worker::world();
  std::vector<Collectives::Planned> plans(40);
  std::vector<std::pair<Tensor, Tensor>> operands;
  for (auto& plan : plans) {
    const auto& [src, dst] = operands.emplace_back(Tensor::full<int64_t>({1}, 1), Tensor::full<int64_t>({1}, 0));
    const Collectives::PlansInto here(collectives, plan);
    world.allreduce(src, dst);
    world.allreduce(src, dst, ReduceOp::kMax);  // not the first
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto& [src, dst] = operands[i];
    src.values<int64_t>()[0] = static_cast<int64_t>(i);
    if (!collectives.run(plans[i], dst)) throw std::logic_error("no plan");
    if (dst.item<int64_t>() != static_cast<int64_t>(i) * world.size()) throw std::logic_error("not what was planned");
  }
  Collectives::Planned none;
  const Collectives::PlansInto here(collectives, none);
  world.gather(operands[0].first, world.rank() == 0 ? Tensor::full<int64_t>({world.size()}, 0) : Tensor());
  if (none.generation != 0) throw std::logic_error("a plan of a gather");
}

const bool registered = [] {
  register_global_func("contract.plans", check_plans);
  register_global_func("contract.check", [](const std::string& ccl) {
    for (const std::vector<int>& workers : member_lists(worker::count()))
      for (const auto foreign : {Member::Foreign::kNone, Member::Foreign::kAll, Member::Foreign::kOdd})
        for (const bool eager : {false, true})
          if (!eager || foreign == Member::Foreign::kNone)  // bytes that travel are the same, wherever they come from
            Member(ccl, workers, foreign, eager).check_all();
  });
  return true;
}();

void check(const std::string& ccl) {
  auto session = make_session();
  session.get_global_func("contract.check")(ccl);
  session.sync_all();
}

TEST(Contract, of_plans) {
  if (kind() == "mpi") return;  // ranks may be on several nodes, where nothing is planned
  auto session = make_session();
  session.get_global_func("contract.plans")();
  session.sync_all();
}

// without MPI they are all the same one
TEST(Contract, of_mpi) {
  if (kind() == "mpi") check("mpi");
}
TEST(Contract, of_what_auto_picks) {
  if (kind() == "mpi") check("auto");
}
TEST(Contract, of_memory_that_a_node_shares) {
  const char* one = std::getenv("TUTTI_TEST_ONE_NODE");
  if (!one || one[0] == '1') check("local");
}

TEST(Contract, of_gpus) {
  const char* ccl = std::getenv("TUTTI_TEST_CCL");
  if (!ccl) return;
  auto session = make_session();
  session.init_ccl(ccl);
  session.get_global_func("contract.check")(ccl);
  session.sync_all();
}

TEST(Contract, of_a_device_whose_work_is_done_late) {
  if (kind() != "thread" || workers() > 4) return;  // the device is of one process
  delayed::install();
  const char* seeds = std::getenv("TUTTI_TEST_SEEDS");
  for (int seed = 0; seed < (seeds ? std::atoi(seeds) : 1); ++seed) {
    delayed::set_seed(static_cast<uint64_t>(seed) << 32);
    auto session = make_session();
    session.init_ccl("delayed");
    session.get_global_func("contract.check")("delayed");
    session.sync_all();
  }
}

}  // namespace
