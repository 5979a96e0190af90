// The contract of every communicator, checked from inside worker functions: all operations, dtypes, ops and roots, uneven
// and empty parts, sizes around the staging buffer, in place, sub-communicators. Expected values are formulas of rank and size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>

#include "collective/float16.h"
#include "collective/nccl/nccl_communicator.h"
#include "collective/reduce.h"
#include "support/delayed_device.h"
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace tutti_test;

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::logic_error("wrong: " + what);
}

bool is_on_gpu() { return worker::device().type == dl::kCUDA || worker::device().type == dl::kROCM; }

/// Where operands lie: where init_ccl has put the worker, on a device that the host can't touch; or, with a host's ccl, on a GPU
/// of TUTTI_TEST_GPUS; with TUTTI_TEST_MIXED each other member stays on the host.
Device place() {
  static const char* const gpus = std::getenv("TUTTI_TEST_GPUS");
  if (gpus && std::getenv("TUTTI_TEST_MIXED") && worker::id() % 2 == 1) return cpu();
  return gpus ? cuda(worker::id() % std::atoi(gpus)) : worker::device();
}
Tensor fresh(Shape shape, DType dtype) { return Tensor::empty(std::move(shape), dtype, place()); }
Tensor placed(const Tensor& host) {
  if (place() == cpu()) return host;
  Tensor t = fresh(host.shape(), host.dtype());
  t.copy_from(host);
  return t;
}
Tensor fetched(const Tensor& t) {
  if (t.device() == cpu()) return t;
  Tensor host = Tensor::empty(t.shape(), t.dtype());
  host.copy_from(t);
  return host;
}

/// Element i of rank r, small enough to be exact in every dtype.
double element(int rank, int64_t i) { return static_cast<double>((rank + 2 * i) % 3 + 1); }

void store(const Tensor& t, int64_t i, double v) {
  char* at = static_cast<char*>(t.data()) + i * t.dtype().size_bytes();
  auto put = [&](auto x) { std::memcpy(at, &x, sizeof x); };
  const DType d = t.dtype();
  if (d == kFloat16) put(narrow_half(static_cast<float>(v)));
  else if (d == kBFloat16) put(narrow_bfloat(static_cast<float>(v)));
  else if (d == kFloat32) put(static_cast<float>(v));
  else if (d == kFloat64) put(v);
  else if (d == kComplex64) put(std::complex<float>(static_cast<float>(v), 0));
  else if (d == kComplex128) put(std::complex<double>(v, 0));
  else if (d == kBool) put(static_cast<uint8_t>(v > 1));
  else if (d.size_bytes() == 8) put(static_cast<int64_t>(v));
  else if (d.size_bytes() == 4) put(static_cast<int32_t>(v));
  else if (d.size_bytes() == 2) put(static_cast<int16_t>(static_cast<int64_t>(v)));
  else put(static_cast<int8_t>(static_cast<int64_t>(v)));
}

double load(const Tensor& t, int64_t i) {
  const char* at = static_cast<const char*>(t.data()) + i * t.dtype().size_bytes();
  auto get = [&](auto x) {
    std::memcpy(&x, at, sizeof x);
    return x;
  };
  const DType d = t.dtype();
  if (d == kFloat16) return widen(get(Half{}));
  if (d == kBFloat16) return widen(get(BFloat{}));
  if (d == kFloat32) return get(float{});
  if (d == kFloat64) return get(double{});
  if (d == kComplex64) return get(std::complex<float>{}).real();
  if (d == kComplex128) return get(std::complex<double>{}).real();
  if (d == kBool) return get(uint8_t{});
  if (d.size_bytes() == 8) return static_cast<double>(get(int64_t{}));
  if (d.size_bytes() == 4) return get(int32_t{});
  if (d.size_bytes() == 2) return get(int16_t{});
  return get(int8_t{});
}

/// Element i is value(i), which repeats every `period`.
template <class F>
Tensor periodic(int64_t n, DType dtype, int64_t period, F value) {
  Tensor t = Tensor::empty({n}, dtype);
  const int64_t item = dtype.size_bytes();
  for (int64_t i = 0; i < std::min(n, period); ++i) store(t, i, value(i));
  auto* at = static_cast<char*>(t.data());
  for (int64_t have = period; have < n; have *= 2)
    std::memcpy(at + have * item, at, static_cast<size_t>(std::min(have, n - have) * item));
  return t;
}

Tensor filled(int rank, int64_t n, DType dtype, int64_t first = 0) {
  return placed(periodic(n, dtype, 3, [&](int64_t i) { return element(rank, first + i); }));
}

double reduced(DType dtype, ReduceOp op, int size, int64_t i) {
  Tensor cell = Tensor::empty({1}, dtype);
  double acc = 0;
  for (int r = 0; r < size; ++r) {
    store(cell, 0, element(r, i));
    const double x = load(cell, 0);
    if (r == 0) acc = x;
    else if (op == ReduceOp::kProd) acc *= x;
    else if (op == ReduceOp::kMin) acc = std::min(acc, x);
    else if (op == ReduceOp::kMax) acc = std::max(acc, x);
    else acc += x;
  }
  if (op != ReduceOp::kAvg) {
    store(cell, 0, acc);  // products of small integers wrap
    return dtype == kBool ? acc : load(cell, 0);
  }
  acc /= size;
  return dtype.code == dl::kInt || dtype.code == dl::kUInt ? std::trunc(acc) : acc;
}

const DType kReducible[] = {kInt8,    kInt16,    kInt32,   kInt64,   kUInt8, kUInt16,    kUInt32,    kUInt64,
                            kFloat16, kBFloat16, kFloat32, kFloat64, kBool,  kComplex64, kComplex128};
const ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kAvg};
// empty, one, odd, around the staging memory (256 KiB), several rounds of it
const int64_t kSizes[] = {0, 1, 7, 65535, 65537, 200001};

void check_reductions(const Comm& comm, DType dtype, int64_t n) {
  for (ReduceOp op : kOps) {
    if (!(is_on_gpu() ? nccl_reduces : can_reduce)(dtype, op)) continue;
    const double tolerance = dtype == kFloat16 || dtype == kBFloat16 ? 0.02 : 1e-5;
    double wanted[3];  // the elements' period
    for (int64_t i = 0; i < 3; ++i) wanted[i] = reduced(dtype, op, comm.size(), i);
    auto check = [&](const Tensor& result, int64_t first, const char* what) {
      const Tensor got = fetched(result);
      for (int64_t i = 0; i < got.element_count(); i += std::max<int64_t>(1, got.element_count() / 997)) {
        const double want = wanted[(first + i) % 3], have = load(got, i);
        if (!(std::abs(want - have) <= tolerance * std::abs(want)))
          expect(false, std::string(what) + " " + to_string(op) + " " + to_string(dtype) + " n=" + std::to_string(n) +
                            " i=" + std::to_string(i) + " want " + std::to_string(want) + " have " + std::to_string(have));
      }
    };
    const Tensor src = filled(comm.rank(), n, dtype);
    Tensor dst = fresh({n}, dtype);
    comm.allreduce(src, dst, op);
    check(dst, 0, "allreduce");
    comm.allreduce(src, src, op);  // in place
    check(src, 0, "allreduce in place");
    const Tensor long_src = filled(comm.rank(), n * comm.size(), dtype);
    comm.reduce_scatter(long_src, dst, op);
    check(dst, comm.rank() * n, "reduce_scatter");
  }
}

/// One member has a value of its own, the others another: the place of that member must not matter. Bits are compared.
void check_not_numbers(const Comm& comm, DType dtype, int64_t n) {
  struct Row {
    double own, others, min, max;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  const Row rows[] = {{kNan, 1, kNan, kNan},     {1, kNan, kNan, kNan},      {-kNan, -0.0, kNan, kNan}, {-kNan, kNan, kNan, kNan},
                      {kNan, -kInf, kNan, kNan}, {-0.0, 0.0, -0.0, 0.0},     {0.0, -0.0, -0.0, 0.0},    {-0.0, -0.0, -0.0, -0.0},
                      {kInf, -0.0, -0.0, kInf},  {-kInf, kInf, -kInf, kInf}, {-1, 0.0, -1, 0.0}};
  constexpr int64_t kRows = std::size(rows);
  const int64_t size = comm.size();
  if (size == 1 || is_on_gpu()) return;  // there the other operand counts
  const auto row_of = [&](int64_t i) -> const Row& { return rows[i % kRows]; };
  const auto mine = [&](int64_t count) {
    return placed(periodic(count, dtype, kRows * size,
                           [&](int64_t i) { return i / kRows % size == comm.rank() ? row_of(i).own : row_of(i).others; }));
  };
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const auto check = [&](const Tensor& result, int64_t first, const char* what) {
      const Tensor got = fetched(result);
      const Tensor want = periodic(
          n, dtype, kRows, [&](int64_t i) { return op == ReduceOp::kMin ? row_of(first + i).min : row_of(first + i).max; });
      const auto* have_bytes = static_cast<const char*>(got.data());
      const auto* want_bytes = static_cast<const char*>(want.data());
      const int64_t at = std::mismatch(have_bytes, have_bytes + got.size_bytes(), want_bytes).first - have_bytes;
      if (at == got.size_bytes()) return;
      const int64_t i = at / dtype.size_bytes();
      expect(false, std::string(what) + " " + to_string(op) + " " + to_string(dtype) + " n=" + std::to_string(n) + " i=" +
                        std::to_string(i) + " want " + std::to_string(load(want, i)) + " have " + std::to_string(load(got, i)));
    };
    const Tensor src = mine(n), dst = Tensor::like(src);
    comm.allreduce(src, dst, op);
    check(dst, 0, "allreduce");
    comm.allreduce(src, src, op);
    check(src, 0, "allreduce in place");
    comm.reduce_scatter(mine(n * size), dst, op);
    check(dst, comm.rank() * n, "reduce_scatter");
  }
}

void check_moves(const Comm& comm, DType dtype, int64_t n) {
  const int size = comm.size(), rank = comm.rank();
  auto same = [&](const Tensor& result, int64_t at, const Tensor& expected, const char* what) {
    const Tensor got = fetched(result), want = fetched(expected);
    const auto item = dtype.size_bytes();
    expect(want.size_bytes() == 0 ||
               std::memcmp(static_cast<char*>(got.data()) + at * item, want.data(), static_cast<size_t>(want.size_bytes())) == 0,
           std::string(what) + " " + to_string(dtype) + " n=" + std::to_string(n));
  };
  const Tensor mine = filled(rank, n, dtype);
  Tensor all = fresh({n * size}, dtype);
  comm.allgather(mine, all);
  for (int r = 0; r < size; ++r) same(all, r * n, filled(r, n, dtype), "allgather");
  Tensor in_place = fresh({n * size}, dtype);
  in_place.slice(rank * n, (rank + 1) * n).copy_from(mine);
  comm.allgather(in_place.slice(rank * n, (rank + 1) * n), in_place);
  same(in_place, 0, all, "allgather in place");
  const Tensor parts = filled(rank, n * size, dtype);
  comm.all_to_all(parts, all);
  for (int r = 0; r < size; ++r) same(all, r * n, filled(r, n, dtype, rank * n), "all_to_all");
  comm.all_to_all(parts, parts);
  same(parts, 0, all, "all_to_all in place");
  // uneven: r has (2 r + 3 s) % 4 pieces for s, none for some
  const auto sent = [&](int r, int s) { return (2 * r + 3 * s) % 4 * (n / 2 + 1); };
  std::vector<int64_t> to, from;
  for (int r = 0; r < size; ++r) to.push_back(sent(rank, r)), from.push_back(sent(r, rank));
  const auto total = [](const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); };
  Tensor uneven = fresh({total(from)}, dtype);
  comm.all_to_all(filled(rank, total(to), dtype), uneven, to, from);
  for (int r = 0, at = 0; r < size; at += static_cast<int>(from[static_cast<size_t>(r++)])) {
    int64_t first = 0;
    for (int s = 0; s < rank; ++s) first += sent(r, s);
    same(uneven, at, filled(r, from[static_cast<size_t>(r)], dtype, first), "uneven all_to_all");
  }
  Tensor whole_buffer = fresh({n + 2}, dtype);  // an empty part inside the other operand
  const std::vector<int64_t> nothing(static_cast<size_t>(size), 0);
  comm.all_to_all(whole_buffer.slice(1, 1), whole_buffer.slice(0, 0), nothing, nothing);
  for (int root = 0; root < size; ++root) {
    Tensor got = fresh({n}, dtype);
    comm.broadcast(rank == root ? mine : Tensor(), got, root);
    same(got, 0, filled(root, n, dtype), "broadcast");
    comm.scatter(rank == root ? filled(root, n * size, dtype) : Tensor(), got, root);
    same(got, 0, filled(root, n, dtype, rank * n), "scatter");
    Tensor gathered = rank == root ? fresh({n * size}, dtype) : Tensor();
    comm.gather(mine, gathered, root);
    for (int r = 0; rank == root && r < size; ++r) same(gathered, r * n, filled(r, n, dtype), "gather");
    // uneven: member r has n + r elements, and one has none
    std::vector<int64_t> counts;
    for (int r = 0; r < size; ++r) counts.push_back(r == size / 2 ? 0 : n + r);
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t before = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
    Tensor part = fresh({counts[static_cast<size_t>(rank)]}, dtype);
    comm.scatter(rank == root ? filled(root, total, dtype) : Tensor(), part, root,
                 rank == root ? counts : std::vector<int64_t>{});
    same(part, 0, filled(root, part.element_count(), dtype, before), "uneven scatter");
    Tensor whole = rank == root ? fresh({total}, dtype) : Tensor();
    comm.gather(filled(rank, part.element_count(), dtype), whole, root, rank == root ? counts : std::vector<int64_t>{});
    if (rank == root)
      for (int64_t r = 0, at = 0; r < size; at += counts[static_cast<size_t>(r++)])
        same(whole, at, filled(static_cast<int>(r), counts[static_cast<size_t>(r)], dtype), "uneven gather");
  }
}

/// Pairs (0,1), (2,3), ...; with an odd size the last member sits out.
void check_pairs(const Comm& comm, int64_t n) {
  const int peer = comm.rank() ^ 1;
  if (peer >= comm.size()) return;
  const Tensor mine = filled(comm.rank(), n, kFloat32);
  Tensor got = fresh({n}, kFloat32);
  for (int i = 0; i < 3; ++i) {
    if (comm.rank() < peer) comm.send(mine, peer), comm.recv(got, peer);
    else comm.recv(got, peer), comm.send(mine, peer);
    expect(load(fetched(got), n - 1) == element(peer, n - 1), "send/recv");
  }
}

Comm comm_named(const std::string& name) {
  if (name == "world") return worker::world();
  if (name == "group") return worker::group();
  if (name == "named") {  // all but the last, if there are more than two, in another order; the last alone
    const int n = worker::count() - (worker::count() > 2 ? 1 : 0);
    std::vector<int> workers;
    for (int w = n; w-- > 0;) workers.push_back(w);
    return worker::comm(worker::id() < n ? workers : std::vector{worker::id()});
  }
  return worker::world().split(worker::id() % 2, -worker::id());  // odd and even workers, in reverse order
}

const bool registered = [] {
  register_global_func("comm.reductions",
                       [](const std::string& which, DType dtype, int64_t n) { check_reductions(comm_named(which), dtype, n); });
  register_global_func("comm.moves",
                       [](const std::string& which, DType dtype, int64_t n) { check_moves(comm_named(which), dtype, n); });
  register_global_func("comm.pairs", [](const std::string& which, int64_t n) { check_pairs(comm_named(which), n); });
  register_global_func("comm.split", [] {
    for (int i = 0; i < 200; ++i) {  // more than a worker has slots
      const Comm sub = worker::world().split(worker::id() % 2, -worker::id());
      expect(sub.size() == (worker::count() + (worker::id() % 2 == 0 ? 1 : 0)) / 2, "size of a split");
      expect(sub.workers()[static_cast<size_t>(sub.rank())] == worker::id(), "rank in a split");
      Tensor x = Tensor::full<int64_t>({1}, worker::id()), sum = Tensor::like(x);
      sub.allreduce(x, sum);
      int64_t want = 0;
      for (int w : sub.workers()) want += w;
      expect(sum.item<int64_t>() == want, "allreduce of a split");
      sub.barrier();
    }
  });
  register_global_func("comm.split_otherwise", [] {  // a slot's next use has other members, who have done fewer collectives on it
    const int id = worker::id();
    for (int i = 0; i < 150; ++i) {
      const int color = i / 50 % 2 == 0 ? id / 2 : 0;
      const Comm sub = worker::world().split(color);
      for (int w : sub.workers()) expect((i / 50 % 2 == 0 ? w / 2 : 0) == color, "members");
      for (int times = 0; times <= i % 3; ++times) {
        const Tensor x = Tensor::full<int64_t>({1}, i), sum = Tensor::like(x);
        sub.allreduce(x, sum);
        expect(sum.item<int64_t>() == int64_t{i} * sub.size(), "allreduce of a split");
      }
    }
  });
  register_global_func("comm.keep", [](int64_t round) {  // the same ones in every round: in a worker's hands, and found again
    static std::vector<std::vector<Comm>> kept(64);      // by worker
    auto& mine = kept[static_cast<size_t>(worker::id())];
    const int n = worker::count();
    if (round == 0) mine.clear(), mine.push_back(worker::world()), mine.push_back(worker::group());
    size_t at = 2;
    for (int length = 1; length <= n; ++length)  // strided, and in every rotation
      for (int stride = 1; stride <= 3; ++stride) {
        std::vector<int> workers;
        for (int w = 0; w < length; w += stride) workers.push_back(w);
        for (size_t turn = 0; turn < workers.size(); ++turn) {
          std::rotate(workers.begin(), workers.begin() + 1, workers.end());
          if (std::ranges::find(workers, worker::id()) == workers.end()) continue;
          if (round == 0) mine.push_back(worker::comm(workers));
          expect(mine.at(at++).workers() == workers, "members of a communicator that was kept");
        }
      }
    for (const Comm& comm : mine) {
      const Tensor x = placed(Tensor::full<int64_t>({3}, worker::id() + round)), sum = fresh({3}, kInt64);
      comm.allreduce(x, sum);
      const auto& workers = comm.workers();
      const int64_t want = std::accumulate(workers.begin(), workers.end(), int64_t{0}) + round * std::ssize(workers);
      expect(fetched(sum).values<int64_t>()[2] == want, "allreduce of a communicator that was kept");
    }
    return std::ssize(mine);
  });
  register_global_func("comm.name", [](const std::string& what) {
    const int id = worker::id(), n = worker::count();
    if (what == "none") worker::comm({});
    if (what == "others") worker::comm({(id + 1) % n});
    if (what == "twice") worker::comm({id, id});
    if (what == "beyond") worker::comm({id, n});
    if (what == "order") worker::comm(id == 0 ? std::vector{0, 1} : std::vector{1, 0}).barrier();  // on the first two
    if (what == "fails") {
      if (id == 0) throw std::runtime_error("not me");
      worker::comm({0, id}).barrier();
    }
  });
  register_global_func("comm.half_average", [](DType dtype, double value) {
    const Comm world = worker::world();
    const int size = world.size();
    Tensor given = Tensor::empty({3 * size}, dtype);
    for (int64_t i = 0; i < given.element_count(); ++i) store(given, i, value);
    Tensor all = placed(given), sum_there = Tensor::like(all), part_there = fresh({3}, dtype);
    world.allreduce(all, sum_there, ReduceOp::kAvg);
    world.reduce_scatter(all, part_there, ReduceOp::kAvg);
    const Tensor sum = fetched(sum_there), part = fetched(part_there);
    for (int64_t i = 0; i < 3; ++i)
      expect(load(sum, i) == load(given, i) && load(part, i) == load(given, i),
             "average of equal halves: " + std::to_string(load(sum, i)));
    world.allreduce(all, all, ReduceOp::kAvg);  // in place
    expect(load(fetched(all), 0) == load(sum, 0), "average in place");
  });
  register_global_func("comm.not_numbers", [](DType dtype, int64_t n) { check_not_numbers(worker::world(), dtype, n); });
  register_global_func("comm.overlaps", [](int64_t n) {
    const Comm world = worker::world();
    const auto size = static_cast<int64_t>(world.size());
    const auto numbered = [](int64_t count) {
      Tensor t = Tensor::empty({count}, kInt32);
      for (int64_t i = 0; i < count; ++i) t.values<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i);
      return placed(t);
    };
    const auto check = [](const Tensor& there, int64_t begin, int64_t end, auto want, const char* what) {
      const Tensor got = fetched(there);
      for (int64_t i = begin; i < end; i += 97) expect(got.values<int32_t>()[static_cast<size_t>(i)] == want(i), what);
    };
    Tensor t = numbered(n + 1);
    world.broadcast(t.slice(0, n), t.slice(1, n + 1));
    check(
        t, 1, n + 1, [](int64_t i) { return i - 1; }, "broadcast one further");
    Tensor whole = numbered(n * size);  // own part in place: the result lies inside the operand
    world.scatter(world.rank() == 0 ? whole : Tensor(), whole.slice(0, n));
    check(
        whole, 0, n, [&](int64_t i) { return i + n * world.rank(); }, "scatter into the operand");
    Tensor mine = numbered(n * size);
    world.allgather(mine.slice(n * (size - 1), n * size), mine);
    check(
        mine, 0, n * size, [&](int64_t i) { return i % n + n * (size - 1); }, "allgather into the operand");
  });
  register_global_func("comm.refuse", [](const std::string& what) {
    const Comm world = worker::world();
    Tensor a = Tensor::full<float>({4}, 1), b = Tensor::full<float>({4}, 1), big = Tensor::full<float>({8}, 1);
    if (what == "empty") world.allreduce(Tensor(), a);
    if (what == "count") world.allreduce(a, big);
    if (what == "dtype") world.allreduce(a, Tensor::full<int32_t>({4}, 1));
    if (what == "strided") world.allreduce(big.view({4}, {2}, 0), a);
    if (what == "overlap") world.allreduce(big.slice(0, 4), big.slice(2, 6));
    if (what == "bool sum") world.allreduce(Tensor::full<bool>({4}, true), Tensor::full<bool>({4}, true));
    if (what == "fp8")
      world.allreduce(Tensor::empty({4}, parse_dtype("float8_e4m3fn")), Tensor::empty({4}, parse_dtype("float8_e4m3fn")));
    if (what == "root") world.broadcast(a, b, world.size());
    if (what == "self send") world.send(a, world.rank());
    if (what == "color") world.split(-1);
    if (what == "own part") world.scatter(Tensor::full<float>({3 * world.size()}, 0), a, world.rank());
    const std::vector<int64_t> none(static_cast<size_t>(world.size()), 0);
    if (what == "uneven one member") {  // which catches, and goes on with the next
      try {
        world.all_to_all(a, b, world.rank() == 0 ? std::vector<int64_t>{} : none, none);
      } catch (const std::exception&) {
      }
      const Tensor x = Tensor::full<int64_t>({1}, 1);
      world.allreduce(x, x);
      expect(x.item<int64_t>() != world.size(), "the next works");
    }
    if (what == "uneven total") world.all_to_all(a, b, none, none);
    if (what == "uneven members") world.all_to_all(a, b, {}, none);
    if (what == "uneven negative") {
      auto counts = none;
      counts[0] = -4;
      world.all_to_all(a, b, counts, none);
    }
    if (what == "uneven overlap") {
      auto counts = none;
      counts[static_cast<size_t>(world.rank())] = 4;
      world.all_to_all(a, a, counts, counts);
    }
    if (what == "uneven pair") {  // all send four to member 0, which expects three of the last
      auto to = none, from = none;
      to[0] = 4;
      if (world.rank() == 0) from.assign(from.size(), 4), from.back() = 3;
      const int64_t all = world.rank() == 0 ? 4 * world.size() - 1 : 0;
      world.all_to_all(a, Tensor::empty({all}), to, from);
    }
    if (what == "counts") world.gather(a, Tensor::full<float>({4 * world.size()}, 0), world.rank(), {1});
  });
  return true;
}();

class Communicator : public testing::Test {
 protected:
  std::vector<std::string> ccls() const {
    if (const char* one = std::getenv("TUTTI_TEST_CCL")) return {one};
    const char* nodes = std::getenv("TUTTI_TEST_ONE_NODE");
    if (kind() == "thread" && workers() <= 4) return {"local", "delayed"};
    return kind() == "mpi" && nodes && nodes[0] == '0' ? std::vector<std::string>{"mpi", "auto"}
                                                       : std::vector<std::string>{"mpi", "local"};
  }
  static Session session() {
    Session s = make_session();
    if (std::getenv("TUTTI_TEST_GPUS")) s.init_ccl("mpi");  // else operands on a device are refused
    return s;
  }
  static int seeds(const std::string& ccl) {
    const char* text = std::getenv("TUTTI_TEST_SEEDS");
    return text && ccl == "delayed" ? std::atoi(text) : 1;
  }
  void on_all(const char* function, const std::vector<std::vector<Value>>& calls) {
    delayed::install();
    for (int groups : group_counts())
      for (const std::string& ccl : ccls())
        for (int seed = 0; seed < seeds(ccl); ++seed) {
          delayed::set_seed(static_cast<uint64_t>(seed) << 32);
          Session s = make_session(groups);
          s.init_ccl(ccl);
          auto f = s.get_global_func(function);
          for (const auto& args : calls) {
            s.call(f, args);
            try {
              s.sync_all();
            } catch (const RemoteError& error) {
              ADD_FAILURE() << ccl << " seed " << seed << " groups " << groups << ": " << error.what();
            }
          }
        }
  }
};

TEST_F(Communicator, reduces_every_dtype_with_every_op) {
  std::vector<std::vector<Value>> calls;
  for (DType dtype : kReducible) calls.push_back({"world", dtype, 7});
  for (int64_t n : kSizes)
    for (DType dtype : {kFloat32, kInt8, kBFloat16}) calls.push_back({"world", dtype, n});
  if (workers() <= 3) calls.push_back({"world", kFloat64, (3 << 20) + 5});  // past the caches
  for (DType dtype : {kFloat32, kFloat16})
    calls.push_back({"group", dtype, 1000}), calls.push_back({"sub", dtype, 1000}), calls.push_back({"named", dtype, 1000});
  on_all("comm.reductions", calls);
}

TEST_F(Communicator, moves_every_dtype) {
  std::vector<std::vector<Value>> calls;
  for (DType dtype : kReducible) calls.push_back({"world", dtype, 7});
  calls.push_back({"world", parse_dtype("float8_e5m2"), 7});
  for (int64_t n : kSizes) calls.push_back({"world", kFloat32, n});
  calls.push_back({"group", kFloat64, 1000});
  calls.push_back({"sub", kFloat64, 1000});
  calls.push_back({"named", kFloat64, 1000});
  on_all("comm.moves", calls);
}

TEST_F(Communicator, sends_between_pairs) {
  on_all("comm.pairs", {{"world", 1}, {"world", 70000}, {"group", 5}, {"sub", 5}, {"named", 5}});
}

TEST_F(Communicator, splits_again_and_again) { on_all("comm.split", {{}}); }
TEST_F(Communicator, keeps_what_is_named_by_its_members) { on_all("comm.keep", {{0}, {1}, {2}}); }

TEST_F(Communicator, refuses_lists_of_members_and_goes_on) {
  Session s = session();
  const auto name = s.get_global_func("comm.name"), keep = s.get_global_func("comm.keep");
  std::vector<std::pair<const char*, const char*>> rows = {
      {"none", "is not among the 0"}, {"twice", "is listed twice"}, {"beyond", "expected 0 to"}};
  if (workers() > 1) rows.insert(rows.end(), {{"others", "is not among the 1"}, {"fails", "not me"}});
  if (workers() == 2) rows.emplace_back("order", "deadlock in command");
  for (const auto& [what, text] : rows) {
    name(what);
    const std::string message = message_of<RemoteError>([&] { s.sync_all(); });
    EXPECT_NE(message.find(text), std::string::npos) << what << ": " << message;
    keep(0);
    s.sync_all();
  }
}
TEST_F(Communicator, splits_with_other_members) { on_all("comm.split_otherwise", {{}}); }

TEST_F(Communicator, refuses_wrong_operands_and_goes_on) {
  const std::pair<const char*, const char*> rows[] = {{"empty", "holds no tensor"},
                                                      {"count", "equal counts"},
                                                      {"dtype", "src is float32, dst is int32"},
                                                      {"strided", "strided"},
                                                      {"overlap", "overlap in part"},
                                                      {"bool sum", "bool has no sum"},
                                                      {"fp8", "has no sum"},
                                                      {"root", "root"},
                                                      {"self send", "expected another member"},
                                                      {"color", "negative"},
                                                      {"counts", "add up to"},
                                                      {"uneven one member", "wrong: the next works"},
                                                      {"uneven total", "src_counts add up to 0, src has 4 elements"},
                                                      {"uneven members", "0 src_counts"},
                                                      {"uneven negative", "src_counts has an entry -4"},
                                                      {"uneven overlap", "they must be apart"},
                                                      {"uneven pair", "which expects 3"},
                                                      {"own part", "in the root's own part, which has 4"}};
  Session s = session();
  auto refuse = s.get_global_func("comm.refuse"), moves = s.get_global_func("comm.moves");
  for (const auto& [what, text] : rows) {
    if (workers() == 1 && std::string(what) == "counts") continue;  // one count for one member is right
    refuse(what);
    const std::string message = message_of<RemoteError>([&] { s.sync_all(); });
    EXPECT_NE(message.find(text), std::string::npos) << what << ": " << message;
    moves("world", kFloat32, 3);
    s.sync_all();
  }
}

TEST_F(Communicator, averages_halves_whose_sum_is_beyond_them) {
  on_all("comm.half_average", {{kFloat16, 40000.0}, {kBFloat16, 1e38 / 8}});
}

TEST_F(Communicator, min_and_max_keep_nan_and_order_zeros_wherever_they_are) {
  std::vector<std::vector<Value>> calls;
  for (DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64})
    for (int64_t n : {3, 101, 40001}) calls.push_back({dtype, n});  // 40001: two levels, from 64 KiB on
  on_all("comm.not_numbers", calls);
}

TEST_F(Communicator, overlapping_operands_are_read_before_they_are_written) {
  on_all("comm.overlaps", {{1000}, {200000}});  // 200000 floats: several rounds of the staging memory
}

}  // namespace
