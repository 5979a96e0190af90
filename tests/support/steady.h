// Whether what worker processes hold - descriptors, threads, mappings, memory - ends where it began.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <thread>

#include "support/session_kinds.h"

namespace tutti_test {

inline int entries(const char* path) {
  DIR* dir = opendir(path);
  int n = 0;
  while (readdir(dir)) ++n;
  closedir(dir);
  return n;
}

inline int64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  return 0;
}

inline int tutti_mappings() {
  std::ifstream maps("/proc/self/maps");
  int n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("tutti") != std::string::npos;
  return n;
}

/// What each worker's process has: descriptors, threads, mappings of ours, resident KiB.
inline const bool usage_registered = tutti::register_global_func("soak.usage", [] {
  static std::mutex mutex;  // workers that are threads would count each other's open folders
  std::lock_guard lock(mutex);
  return tutti::Shape{entries("/proc/self/fd"), entries("/proc/self/task"), tutti_mappings(), resident_kib()};
});
inline constexpr size_t kKib = 3;

inline std::vector<tutti::Shape> usage_of(tutti::Session& s) {
  s.sync_all();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // a node's watch opens its descriptors soon, but not at once
  tutti::DRef usage = s.get_global_func("soak.usage")();
  std::vector<tutti::Shape> all;
  for (int w = 0; w < s.num_workers(); ++w) all.push_back(usage.debug_get_from_remote(w).as<tutti::Shape>());
  return all;
}

/// Runs `once` a few times to warm up, then n times; nothing may have grown, on any worker. What comes and goes by itself (a
/// node's watch on a busy machine) is looked at again. Resident memory goes up and down by some MiB with how far the controller
/// runs ahead (the pools of MPI and malloc): a leak lifts the least of the later rounds over the most before.
template <class Once, class Look>
void expect_steady(int n, int warm_up, Once once, Look look) {
  std::vector<tutti::Shape> before, after;
  for (int i = 0; i < warm_up; ++i) {
    once();
    auto now = look();
    for (size_t w = 0; w < before.size(); ++w)
      std::ranges::transform(now[w], before[w], now[w].begin(), [](int64_t a, int64_t b) { return std::max(a, b); });
    before = std::move(now);
  }
  const int looks = std::min(n, 10);
  for (int i = 0; i < looks; ++i) {
    for (int k = i * n / looks; k < (i + 1) * n / looks; ++k) once();
    auto now = look();
    for (size_t w = 0; w < after.size(); ++w) now[w][kKib] = std::min(now[w][kKib], after[w][kKib]);
    if (i >= looks / 2) after = std::move(now);
  }
  auto has_grown = [&](size_t w) {
    return !std::equal(after[w].begin(), after[w].begin() + kKib, before[w].begin(), std::less_equal());
  };
  for (int again = 0; again < 20; ++again)
    for (size_t w = 0; w < before.size(); ++w)
      if (has_grown(w)) std::ranges::copy_n(look()[w].begin(), kKib, after[w].begin());
  for (size_t w = 0; w < before.size(); ++w) {
    for (size_t i = 0; i < kKib; ++i) EXPECT_LE(after[w][i], before[w][i]) << "worker " << w << ", number " << i;
    EXPECT_LE(after[w][kKib], before[w][kKib] + 4096) << "worker " << w << ", " << n << " rounds";
  }
}

}  // namespace tutti_test
