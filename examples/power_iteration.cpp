// The largest eigenvalue of a matrix whose rows are spread over the workers, unevenly if need be. Each step multiplies the own
// rows and allreduces the vector; the controller looks at the estimate and decides when to stop.
// mpirun -n 4 build/examples/power_iteration [n]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tutti/tutti.h"

namespace {

using tutti::Tensor;

/// Rows [first, last) of the Lehmer matrix, A[i][j] = min(i, j) / max(i, j) counted from 1: symmetric, positive definite.
struct Rows {
  int64_t n, first, last;
  std::vector<double> values;
  explicit Rows(int64_t size, int64_t part, int64_t parts) : n(size), first(n * part / parts), last(n * (part + 1) / parts) {
    for (int64_t i = first + 1; i <= last; ++i)
      for (int64_t j = 1; j <= n; ++j)
        values.push_back(static_cast<double>(std::min(i, j)) / static_cast<double>(std::max(i, j)));
  }
};

// each worker's rows stay on it, as an opaque object in a register
const bool registered[] = {
    tutti::register_global_func(
        "power.rows", [](int64_t n) { return std::make_shared<const Rows>(n, tutti::worker::id(), tutti::worker::count()); }),
    // y = the own rows' part of A v, zero elsewhere: the sum over all workers is A v
    tutti::register_global_func("power.multiply",
                                [](const std::shared_ptr<const Rows>& rows, const Tensor& v, const Tensor& y) {
                                  const auto in = v.values<double>(), out = y.values<double>();
                                  std::fill(out.begin(), out.end(), 0.0);
                                  auto a = rows->values.begin();
                                  for (int64_t i = rows->first; i < rows->last; ++i)
                                    for (double x : in) out[static_cast<size_t>(i)] += *a++ * x;
                                }),
    // v = y / |y|; the estimate is |y|, since |v| was 1
    tutti::register_global_func("power.normalise",
                                [](const Tensor& y, const Tensor& v) {
                                  double norm = 0;
                                  for (double value : y.values<double>()) norm += value * value;
                                  norm = std::sqrt(norm);
                                  std::ranges::transform(y.values<double>(), v.values<double>().begin(),
                                                         [norm](double value) { return value / norm; });
                                  return norm;
                                }),
};

int controller(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 300;
  if (n < 1) return std::fprintf(stderr, "power_iteration: n must be at least 1\n"), 2;
  auto session = tutti::Session::create();
  auto multiply = session.get_global_func("power.multiply"), normalise = session.get_global_func("power.normalise");
  tutti::DRef rows = session.get_global_func("power.rows")(n);
  Tensor start = Tensor::empty({n}, tutti::kFloat64);
  std::ranges::fill(start.values<double>(), 1 / std::sqrt(static_cast<double>(n)));
  tutti::DRef v = session.broadcast(start), y = session.empty({n}, tutti::kFloat64);
  double value = 0, change = 1;
  int steps = 0;
  while (change > 1e-14 && steps < 10000) {
    tutti::DRef estimate;
    for (int i = 0; i < 10; ++i, ++steps) {  // ten steps are on their way before the controller looks
      multiply(rows, v, y);
      session.allreduce(y, y);
      estimate = normalise(y, v);
    }
    const double now = estimate.debug_get_from_remote(0).as<double>();
    change = std::abs(now - value) / now;
    value = now;
  }
  std::printf("workers %d n %lld steps %d eigenvalue %.15g\n", session.num_workers(), static_cast<long long>(n), steps, value);
  return change <= 1e-14 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return tutti::run(argc, argv, controller); }
