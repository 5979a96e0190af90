// Counts beyond 2^31, with real memory (about 3 x 2 GiB a worker): the long suite only.
#include <gtest/gtest.h>

#include <numeric>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

constexpr int64_t kCount = (int64_t{1} << 31) + 5;

int8_t element(int64_t i) { return static_cast<int8_t>(i % 31); }

const bool registered = register_global_func("big.run", [] {
  const Comm world = worker::world();
  const auto rank = static_cast<int8_t>(world.rank()), size = static_cast<int8_t>(world.size());
  Tensor t = Tensor::empty({kCount}, kInt8);
  auto v = t.values<int8_t>();
  auto check = [&](const char* what, auto expected) {
    for (int64_t i : {int64_t{0}, int64_t{1} << 30, (int64_t{1} << 31) - 1, int64_t{1} << 31, kCount - 1})
      if (v[static_cast<size_t>(i)] != expected(i)) throw std::logic_error(std::string(what) + " at " + std::to_string(i));
  };
  for (int64_t i = 0; i < kCount; ++i) v[static_cast<size_t>(i)] = static_cast<int8_t>(element(i) + rank);
  world.allreduce(t, t);
  check("allreduce", [&](int64_t i) { return static_cast<int8_t>(size * element(i) + size * (size - 1) / 2); });
  for (int64_t i = 0; i < kCount; ++i) v[static_cast<size_t>(i)] = rank == 0 ? element(i) : int8_t{0};
  world.broadcast(t, t);
  check("broadcast", element);
  // uneven: the last member has nearly all
  std::vector<int64_t> counts(static_cast<size_t>(size), 1);
  counts.back() = kCount - (size - 1);
  const int64_t first = rank, mine = counts[static_cast<size_t>(rank)];
  Tensor part = Tensor::empty({mine}, kInt8);
  world.scatter(t, part, 0, rank == 0 ? counts : std::vector<int64_t>{});
  if (part.values<int8_t>().back() != element(first + mine - 1)) throw std::logic_error("scatter");
  for (int8_t& x : v) x = 0;
  world.gather(part, t, 0, rank == 0 ? counts : std::vector<int64_t>{});
  if (rank == 0) check("gather", element);
});

TEST(BigCounts, allreduce_broadcast_scatter_gather) {
  for (const char* ccl : {"mpi", "local"}) {
    Session s = make_session(1, 2);
    s.init_ccl(ccl);
    s.get_global_func("big.run")();
    s.sync_all();
  }
}

}  // namespace
