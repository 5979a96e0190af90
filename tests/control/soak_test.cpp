// Again and again: memory, descriptors and threads end where they began. TUTTI_TEST_SOAK=n divides the counts by n.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>

#include "support/steady.h"

namespace {

using namespace tutti;
using namespace tutti_test;

const bool registered = register_global_func("soak.add", [](int64_t a, int64_t b) { return a + b; });

/// A number that grows when MPI communicators are left behind; the lowest free handle, as Fortran sees it.
const bool handles_registered = register_global_func("soak.mpi_handle", [] {
  int usable = 0;
  MPI_Initialized(&usable);
  if (!usable) return 0;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_SELF, &copy);
  const int handle = MPI_Comm_c2f(copy);
  MPI_Comm_free(&copy);
  return handle;
});

std::vector<Value> mpi_handles() {
  Session s = make_session();
  DRef handle = s.get_global_func("soak.mpi_handle")();
  std::vector<Value> all;
  for (int w = 0; w < s.num_workers(); ++w) all.push_back(handle.debug_get_from_remote(w));
  return all;
}

int scaled(int count) {
  const char* text = std::getenv("TUTTI_TEST_SOAK");
  return std::max(1, count / (text ? std::atoi(text) : 1));
}

void use(Session s) {
  DRef src = s.broadcast(Tensor::full<float>({1000}, 1)), dst = s.empty({1000}, kFloat32);
  s.allreduce(src, dst, "sum", false);
  s.sync_all();
}

TEST(Soak, a_million_calls_with_dropped_results) {
  Session s = make_session();
  auto add = s.get_global_func("soak.add");
  const int n = scaled(1000000) / 10;
  expect_steady(
      10, 10,
      [&] {
        for (int i = 0; i < n; ++i) add(i, 1);
        s.sync_all();
      },
      [&] { return usage_of(s); });
}

TEST(Soak, sessions_one_after_another) {
  const int n = scaled(kind() == "thread" ? 10000 : 200);
  const auto handles = mpi_handles();
  expect_steady(
      n, 20, [] { use(make_session()); },
      [] {
        Session s = make_session();
        return usage_of(s);
      });
  EXPECT_EQ(mpi_handles(), handles);
}

}  // namespace
