#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "bench/bench.h"
#include "bench/collective_report.h"
#include "bench/measure.h"
#include "tutti/tutti.h"

namespace tutti::bench {
namespace {

/// Memory of others, as a numpy array is.
Tensor host_array(int64_t rows, int64_t columns) {
  auto owner = std::make_shared<std::vector<float>>(static_cast<size_t>(rows * columns), 1.0f);
  return Tensor::wrap(owner->data(), {rows, columns}, kFloat32, [owner] {});
}

int controller(const Options& options) {
  Session s = Session::create();
  const int64_t workers = s.num_workers();
  Report report(options, "copies between the controller and worker 0, and to all", static_cast<int>(workers));
  for (const char* size : {"64K", "1M", "16M", "64M"}) {
    const int64_t columns = parse_size(size) / 4 / workers, bytes = columns * workers * 4;
    const Tensor array = host_array(workers, columns), back = host_array(workers, columns);
    const DRef there = s.empty({workers, columns}, kFloat32), part = s.empty({columns}, kFloat32);
    s.sync_all();
    const int times = static_cast<int>(std::max<int64_t>(4, (int64_t{256} << 20) / bytes / 8));
    const auto bandwidth = [&](int64_t moved, auto once) {
      const double took = seconds([&] {
        for (int i = 0; i < times; ++i) once();
      });
      return static_cast<double>(moved) * times / took * 1e-9;
    };
    const auto row = [&](const char* what, int64_t copies, auto once) {
      const auto [ours, raw] = paired(options.repeats, [&] { return bandwidth(bytes * copies, [&] { once(), s.sync_all(); }); },
                                      [&] { return bandwidth(bytes, [&] { std::memcpy(back.data(), array.data(), static_cast<size_t>(bytes)); }); });
      report.add({fmt::format("{} of {}", what, size), "GB/s", ours, raw, "memcpy"});
    };
    row("copy_to_worker_0", 1, [&] { s.copy_to_worker_0(array); });
    row("copy_to_worker_0 into an array", 1, [&] { s.copy_to_worker_0(array, there); });
    row("copy_from_worker_0", 1, [&] { s.copy_from_worker_0(back, there); });
    row("broadcast to all (bytes of every copy)", workers, [&] { s.broadcast(array, there); });
    row("scatter to all", 1, [&] { s.scatter(array, part); });
  }
  report.finish();
  return 0;
}

}  // namespace

int copy(int argc, char** argv, const Options& options) {
  return run(argc, argv, [&](int, char**) { return controller(options); });
}

}  // namespace tutti::bench
