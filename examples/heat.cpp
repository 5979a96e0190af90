// Heat flow on a square plate: every worker owns a band of rows and trades its border rows with its neighbours each step.
// The result equals the serial one bit for bit. mpirun -n 4 build/examples/heat [rows [steps]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "tutti/tutti.h"

namespace {

using Grid = std::vector<double>;  // rows x columns, row-major

double start_value(int64_t row, int64_t column, int64_t n) {
  return row == 0 ? 100.0 : (column == n / 2 && row == n / 2 ? 500.0 : 0.0);
}

/// One Jacobi step on rows 1..rows of a band with a halo row above and below; borders of the plate stay.
void relax(const Grid& from, Grid& to, int64_t rows, int64_t columns) {
  for (int64_t r = 1; r <= rows; ++r)
    for (int64_t c = 1; c + 1 < columns; ++c) {
      const auto at = static_cast<size_t>(r * columns + c), up = at - static_cast<size_t>(columns),
                 down = at + static_cast<size_t>(columns);
      to[at] = from[at] + 0.2 * (from[up] + from[down] + from[at - 1] + from[at + 1] - 4 * from[at]);
    }
}

/// The rows strictly inside the plate, [first, last), that part k of n has.
std::pair<int64_t, int64_t> band(int64_t rows, int64_t k, int64_t n) {
  return {1 + (rows - 2) * k / n, 1 + (rows - 2) * (k + 1) / n};
}

Grid initial_band(int64_t first, int64_t last, int64_t n) {
  Grid grid(static_cast<size_t>((last - first + 2) * n));
  for (int64_t r = first - 1; r <= last; ++r)
    for (int64_t c = 0; c < n; ++c) grid[static_cast<size_t>((r - first + 1) * n + c)] = start_value(r, c, n);
  return grid;
}

tutti::Tensor row_view(Grid& grid, int64_t row, int64_t columns) {
  return tutti::Tensor::wrap(grid.data() + row * columns, {columns}, tutti::kFloat64);
}

const bool registered = tutti::register_global_func("heat.run", [](int64_t n, int64_t steps, const tutti::Value& result) {
  // only workers that have rows take part: there may be more workers than rows
  const bool has_rows = [&] {
    const auto [first, last] = band(n, tutti::worker::id(), tutti::worker::count());
    return last > first;
  }();
  const tutti::Comm comm = tutti::worker::world().split(has_rows ? 0 : 1);
  const auto [first, last] = band(n, tutti::worker::id(), tutti::worker::count());
  Grid now = initial_band(first, last, n), next = now;
  const int64_t rows = last - first;
  const int rank = comm.rank(), above = rank - 1, below = rank + 1;
  for (int64_t step = 0; has_rows && step < steps; ++step) {
    // send waits for its receiver: even ranks send first, odd ranks receive first
    for (const bool sends : {rank % 2 == 0, rank % 2 != 0}) {
      if (above >= 0) sends ? comm.send(row_view(now, 1, n), above) : comm.recv(row_view(now, 0, n), above);
      if (below < comm.size()) sends ? comm.send(row_view(now, rows, n), below) : comm.recv(row_view(now, rows + 1, n), below);
    }
    relax(now, next, rows, n);
    std::swap(now, next);
  }
  std::vector<int64_t> counts;
  for (int64_t k = 0; k < tutti::worker::count(); ++k) {
    const auto [from, to] = band(n, k, tutti::worker::count());
    counts.push_back((to - from) * n);
  }
  const auto inner = tutti::Tensor::wrap(now.data() + n, {rows * n}, tutti::kFloat64);
  const auto whole = result.is_none() ? tutti::Tensor() : result.as<tutti::Tensor>();
  tutti::worker::world().gather(inner, whole, 0, tutti::worker::id() == 0 ? counts : std::vector<int64_t>{});
});

int controller(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 120, steps = argc > 2 ? std::atoll(argv[2]) : 300;
  if (n < 3 || steps < 0) return std::fprintf(stderr, "heat: rows must be at least 3\n"), 2;
  auto session = tutti::Session::create();
  tutti::DRef result = session.empty({n - 2, n}, tutti::kFloat64, {}, true, false);
  session.get_global_func("heat.run")(n, steps, result);
  const auto parallel = result.debug_get_from_remote(0).as<tutti::Tensor>();

  Grid now = initial_band(1, n - 1, n), next = now;
  for (int64_t step = 0; step < steps; ++step) {
    relax(now, next, n - 2, n);
    std::swap(now, next);
  }
  const auto values = parallel.values<double>();
  const bool equal = std::equal(values.begin(), values.end(), now.begin() + n);
  std::printf("workers %d plate %lldx%lld steps %lld heat %.6f: %s the serial result\n", session.num_workers(),
              static_cast<long long>(n), static_cast<long long>(n), static_cast<long long>(steps),
              std::accumulate(values.begin(), values.end(), 0.0), equal ? "equals" : "DIFFERS from");
  return equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return tutti::run(argc, argv, controller); }
