// Again and again: memory, descriptors and threads end where they began. TUTTI_TEST_SOAK=n divides the counts by n.
#include <dirent.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <fstream>
#include <mutex>

#include "support/session_kinds.h"

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

int entries(const char* path) {
  DIR* dir = opendir(path);
  int n = 0;
  while (readdir(dir)) ++n;
  closedir(dir);
  return n;
}

int64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  return 0;
}

int tutti_mappings() {
  std::ifstream maps("/proc/self/maps");
  int n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("tutti") != std::string::npos;
  return n;
}

/// What each worker's process has: descriptors, threads, mappings of ours, resident KiB.
const bool usage_registered = register_global_func("soak.usage", [] {
  static std::mutex mutex;  // workers that are threads would count each other's open folders
  std::lock_guard lock(mutex);
  return Shape{entries("/proc/self/fd"), entries("/proc/self/task"), tutti_mappings(), resident_kib()};
});
constexpr size_t kKib = 3;

std::vector<Shape> usage_of(Session& s) {
  s.sync_all();
  DRef usage = s.get_global_func("soak.usage")();
  std::vector<Shape> all;
  for (int w = 0; w < s.num_workers(); ++w) all.push_back(usage.debug_get_from_remote(w).as<Shape>());
  return all;
}

/// Runs `once` a few times to warm up, then n times; nothing may have grown, on any worker. Resident memory goes up and down by some
/// MiB with how far the controller runs ahead (the pools of MPI and malloc): a leak lifts the least of the later rounds over the
/// most before.
template <class Once, class Look>
void expect_steady(int n, int warm_up, Once once, Look look) {
  std::vector<Shape> before, after;
  for (int i = 0; i < warm_up; ++i) {
    once();
    auto now = look();
    for (size_t w = 0; w < before.size(); ++w) now[w][kKib] = std::max(now[w][kKib], before[w][kKib]);
    before = std::move(now);
  }
  const int looks = std::min(n, 10);
  for (int i = 0; i < looks; ++i) {
    for (int k = i * n / looks; k < (i + 1) * n / looks; ++k) once();
    auto now = look();
    for (size_t w = 0; w < after.size(); ++w) now[w][kKib] = std::min(now[w][kKib], after[w][kKib]);
    if (i >= looks / 2) after = std::move(now);
  }
  for (size_t w = 0; w < before.size(); ++w) {
    for (size_t i = 0; i < kKib; ++i) EXPECT_EQ(after[w][i], before[w][i]) << "worker " << w << ", number " << i;
    EXPECT_LE(after[w][kKib], before[w][kKib] + 4096) << "worker " << w << ", " << n << " rounds";
  }
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
  expect_steady(10, 10, [&] {
    for (int i = 0; i < n; ++i) add(i, 1);
    s.sync_all();
  }, [&] { return usage_of(s); });
}

TEST(Soak, sessions_one_after_another) {
  const int n = scaled(kind() == "thread" ? 10000 : 200);
  const auto handles = mpi_handles();
  expect_steady(n, 20, [] { use(make_session()); }, [] {
    Session s = make_session();
    return usage_of(s);
  });
  EXPECT_EQ(mpi_handles(), handles);
}

}  // namespace
