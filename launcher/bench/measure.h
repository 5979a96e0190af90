#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace tutti::bench {

using Seconds = std::chrono::duration<double>;

template <class F>
double seconds(F f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// Medians of what both give in turns, after a first turn that does not count.
template <class A, class B>
std::pair<double, double> paired(int times, A a, B b) {
  std::vector<double> as, bs;
  a(), b();
  for (int i = 0; i < times; ++i) as.push_back(a()), bs.push_back(b());
  return {median(as), median(bs)};
}

}  // namespace tutti::bench
