// Random collectives on random parts of the workers: sizes around the limits (small messages, arenas, staging memory), dtypes,
// operations, memory of tutti's and foreign, in place and not, with offsets; in between the controller's own collectives on
// registers that it drops. Every element of every dst is checked. TUTTI_TEST_SECONDS: how long; TUTTI_TEST_SEED.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

using Random = std::mt19937_64;

uint64_t below(Random& random, uint64_t n) { return random() % n; }

template <class T>
T pick(Random& random, std::initializer_list<T> of) {
  return of.begin()[below(random, of.size())];
}

int64_t any_count(Random& random) {
  const auto around = pick<int64_t>(random, {1, 64, 1024, 2048, 4096, 16384, 32768, 65536, 200000});
  return std::max<int64_t>(0, around + static_cast<int64_t>(below(random, 9)) - 4);
}

/// Small whole numbers, exact in every dtype also when eight of them are added.
int64_t element(int rank, int64_t i, uint64_t salt) {
  return 1 + static_cast<int64_t>((static_cast<uint64_t>(rank) * 5 + static_cast<uint64_t>(i) * 3 + salt) % 7);
}

template <class T>
class Round {
 public:
  Round(Random& all, Random& mine, const Comm& comm) : all_(all), mine_(mine), comm_(comm), salt_(all()) {}

  /// `all_` gives every member the same, `mine_` each its own.
  void run() {
    const int64_t n = any_count(all_), size = comm_.size(), rank = comm_.rank();
    const int root = static_cast<int>(below(all_, static_cast<uint64_t>(size)));
    const auto op = pick(all_, {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin});
    const bool is_root = rank == root;
    switch (below(all_, 9)) {
      case 0: {
        const Tensor src = filled(n), dst = below(mine_, 3) == 0 ? src : memory(n);
        comm_.allreduce(src, dst, op);
        return check(dst, "allreduce", [&](int64_t i) { return reduced(op, i); });
      }
      case 1: {
        const Tensor src = filled(n * size), dst = memory(n);
        comm_.reduce_scatter(src, dst, op);
        return check(dst, "reduce_scatter", [&](int64_t i) { return reduced(op, rank * n + i); });
      }
      case 2: {
        const Tensor whole = memory(n * size), src = below(mine_, 2) ? whole.slice(rank * n, (rank + 1) * n) : memory(n);
        fill(src);
        comm_.allgather(src, whole);
        return check(whole, "allgather", [&](int64_t i) { return element(static_cast<int>(i / n), i % n, salt_); });
      }
      case 3: {
        const Tensor dst = memory(n), src = is_root ? (below(mine_, 2) ? dst : memory(n)) : Tensor();
        if (is_root) fill(src);
        comm_.broadcast(src, dst, root);
        return check(dst, "broadcast", [&](int64_t i) { return element(root, i, salt_); });
      }
      case 4: {
        const auto [counts, listed] = parts(n);
        const Tensor dst = memory(counts[static_cast<size_t>(rank)]);
        comm_.scatter(is_root ? filled(total(counts)) : Tensor(), dst, root, is_root ? listed : std::vector<int64_t>{});
        return check(dst, "scatter", [&, first = before(counts)](int64_t i) { return element(root, first + i, salt_); });
      }
      case 5: {
        const auto [counts, listed] = parts(n);
        const Tensor dst = is_root ? memory(total(counts)) : Tensor();
        comm_.gather(filled(counts[static_cast<size_t>(rank)]), dst, root, is_root ? listed : std::vector<int64_t>{});
        if (!is_root) return;
        int64_t first = 0;
        for (int r = 0; r < size; first += counts[static_cast<size_t>(r++)])
          check(dst.slice(first, first + counts[static_cast<size_t>(r)]), "gather",
                [&](int64_t i) { return element(r, i, salt_); });
        return;
      }
      case 6: {
        const Tensor src = filled(n * size), dst = below(mine_, 3) == 0 ? src : memory(n * size);
        comm_.all_to_all(src, dst);
        return check(dst, "all_to_all", [&](int64_t i) { return element(static_cast<int>(i / n), rank * n + i % n, salt_); });
      }
      case 7: {
        const int to = static_cast<int>(rank ^ 1);  // pairs of neighbours
        if (to >= size) return;
        if (rank < to) return comm_.send(filled(n), to);
        const Tensor dst = memory(n);
        comm_.recv(dst, to);
        return check(dst, "send/recv", [&](int64_t i) { return element(to, i, salt_); });
      }
      default: return comm_.barrier();
    }
  }

 private:
  /// Of tutti's or not, with something before it or not.
  Tensor memory(int64_t n) {
    const auto offset = static_cast<int64_t>(below(mine_, 3) == 0 ? below(mine_, 50) : 0);
    if (below(mine_, 3) != 0) return Tensor::empty({n + offset}, dtype_of<T>()).slice(offset, n + offset);
    auto owner = std::make_shared<std::vector<char>>(static_cast<size_t>(n + offset) * sizeof(T) + 64);
    return Tensor::wrap(owner->data(), {n + offset}, dtype_of<T>(), [owner] {}).slice(offset, n + offset);
  }
  void fill(const Tensor& t) const {
    const auto values = t.values<T>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(element(comm_.rank(), static_cast<int64_t>(i), salt_));
  }
  Tensor filled(int64_t n) {
    const Tensor t = memory(n);
    fill(t);
    return t;
  }
  int64_t reduced(ReduceOp op, int64_t i) const {
    int64_t acc = element(0, i, salt_);
    for (int r = 1; r < comm_.size(); ++r) {
      const int64_t in = element(r, i, salt_);
      acc = op == ReduceOp::kSum ? acc + in : op == ReduceOp::kMax ? std::max(acc, in) : std::min(acc, in);
    }
    return acc;
  }
  struct Parts {
    std::vector<int64_t> counts, listed;  // by the root: equal ones need not be
  };
  Parts parts(int64_t n) {
    std::vector<int64_t> counts;
    const bool even = below(all_, 2) == 0;
    for (int r = 0; r < comm_.size(); ++r)
      counts.push_back(even ? n : static_cast<int64_t>(below(all_, static_cast<uint64_t>(n + 1))));
    const bool lists = below(mine_, 2) == 0;
    return {counts, even && !lists ? std::vector<int64_t>{} : counts};
  }
  static int64_t total(const std::vector<int64_t>& counts) {
    int64_t sum = 0;
    for (int64_t n : counts) sum += n;
    return sum;
  }
  int64_t before(const std::vector<int64_t>& counts) const {
    int64_t sum = 0;
    for (int r = 0; r < comm_.rank(); ++r) sum += counts[static_cast<size_t>(r)];
    return sum;
  }
  template <class Want>
  void check(const Tensor& t, const char* what, Want want) const {
    const auto values = t.values<T>();
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] != static_cast<T>(want(static_cast<int64_t>(i))))
        throw std::logic_error(std::string(what) + " of " + std::to_string(values.size()) + " " + to_string(t.dtype()) +
                               ": element " + std::to_string(i) + " of rank " + std::to_string(comm_.rank()) + "/" +
                               std::to_string(comm_.size()) + " is wrong");
  }

  Random &all_, &mine_;
  const Comm& comm_;
  uint64_t salt_;
};

void rounds(uint64_t seed, int64_t times) {
  Random everyone(seed), mine(seed * 64 + static_cast<uint64_t>(worker::id()));
  const Comm world = worker::world(), group = worker::group();
  for (int64_t i = 0; i < times; ++i) {
    // what a part of the workers draws must not move the others'
    Random all(everyone());
    const auto part = below(all, 4);
    const Comm split =
        part == 3 ? world.split(static_cast<int>((static_cast<uint64_t>(worker::id()) + below(all, 4)) % 2), -worker::id())
                  : world;
    const Comm& comm = part == 2 ? group : split;
    if (part == 2) all = Random(all() + static_cast<uint64_t>(worker::group_id()));
    if (part == 3) all = Random(all() + static_cast<uint64_t>(comm.workers()[0]));
    switch (below(all, 4)) {
      case 0: Round<float>(all, mine, comm).run(); break;
      case 1: Round<int8_t>(all, mine, comm).run(); break;
      case 2: Round<int64_t>(all, mine, comm).run(); break;
      default: Round<double>(all, mine, comm).run(); break;
    }
  }
}

const bool registered =
    register_global_func("stress.rounds", [](int64_t seed, int64_t times) { rounds(static_cast<uint64_t>(seed), times); });

int64_t number(const char* name, int64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : fallback;
}

TEST(Stress, no_wrong_byte) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(number("TUTTI_TEST_SECONDS", 2));
  Random random(static_cast<uint64_t>(number("TUTTI_TEST_SEED", 1)));
  int64_t commands = 0;
  while (std::chrono::steady_clock::now() < end) {
    Session s = make_session(group_counts().back());
    const auto rounds = s.get_global_func("stress.rounds");
    for (int i = 0; i < 20; ++i) {
      const auto n = static_cast<int64_t>(1 + below(random, 100000));
      DRef a = s.broadcast(Tensor::full<float>({n}, 2)), b = s.empty({n}, kFloat32), dropped = s.empty({n}, kFloat32);
      rounds(static_cast<int64_t>(below(random, 1 << 30)), 10);
      s.allreduce(a, b, "sum", false);
      if (below(random, 2)) dropped = DRef();
      a = DRef();
      const auto values =
          to_vector(b.debug_get_from_remote(static_cast<int>(below(random, static_cast<uint64_t>(s.num_workers())))));
      ASSERT_EQ(values.size(), static_cast<size_t>(n));
      for (float v : values) ASSERT_EQ(v, 2.0f * static_cast<float>(s.num_workers()));
      ++commands;
    }
    s.shutdown();  // raises what a destructor could only log
  }
  EXPECT_GT(commands, 0);
}

}  // namespace
