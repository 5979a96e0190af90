#include <fmt/format.h>
#include <mpi.h>

#include <cstring>
#include <memory>

#include "bench/bench.h"
#include "bench/collective_report.h"
#include "bench/measure.h"
#include "tutti/interop/mpi.h"
#include "tutti/tutti.h"

namespace tutti::bench {
namespace {

/// Memory of others, as a numpy array is.
Tensor host_array(int64_t rows, int64_t columns) {
  auto owner = std::make_shared<std::vector<float>>(static_cast<size_t>(rows * columns), 1.0f);
  return Tensor::wrap(owner->data(), {rows, columns}, kFloat32, [owner] {});
}

/// GB/s from the last worker to worker 0, as worker 0 sees it.
double mpi_bandwidth(int64_t bytes, int times) {
  const Comm world = worker::world();
  const MPI_Comm comm = interop::communicator(world);
  const Tensor memory = Tensor::full<uint8_t>({bytes}, 1);
  const int last = worker::count() - 1, count = static_cast<int>(bytes);
  world.barrier();
  const double took = seconds([&] {
    for (int i = 0; i < times; ++i)
      if (worker::id() == last) MPI_Ssend(memory.data(), count, MPI_BYTE, 0, 0, comm);
      else if (worker::id() == 0) MPI_Recv(memory.data(), count, MPI_BYTE, last, 0, comm, MPI_STATUS_IGNORE);
  });
  return static_cast<double>(bytes) * times / took * 1e-9;
}

int controller(const Options& options) {
  Session s = Session::create();
  const int64_t workers = s.num_workers();
  Report report(options, "copies between the controller and its workers", static_cast<int>(workers));
  for (const char* size : {"16K", "64K", "1M", "16M", "64M"}) {
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
      const auto [ours, raw] = paired(
          options.repeats, [&] { return bandwidth(bytes * copies, [&] { once(), s.sync_all(); }); },
          [&] { return bandwidth(bytes, [&] { std::memcpy(back.data(), array.data(), static_cast<size_t>(bytes)); }); });
      report.add({fmt::format("{} of {}", what, size), "GB/s", ours, raw, "memcpy"});
    };
    const int last = static_cast<int>(workers) - 1;
    const auto debug_row = [&](const char* what, auto once) {
      row(what, 1, once);
      if (last == 0) return;
      const auto [ours, raw] = paired(
          options.repeats, [&] { return bandwidth(bytes, once); },
          [&] { return s.get_global_func("bench.mpi_bandwidth")(bytes, times).debug_get_from_remote(0).as<double>(); });
      report.add({fmt::format("{} of {}", what, size), "GB/s", ours, raw, "MPI_Ssend"});
    };
    row("copy_to_worker_0", 1, [&] { s.copy_to_worker_0(array); });
    row("copy_to_worker_0 into an array", 1, [&] { s.copy_to_worker_0(array, there); });
    row("copy_from_worker_0", 1, [&] { s.copy_from_worker_0(back, there); });
    row("broadcast to all (bytes of every copy)", workers, [&] { s.broadcast(array, there); });
    row("scatter to all", 1, [&] { s.scatter(array, part); });
    debug_row("debug_get_from_remote of the last worker", [&] { (void)there.debug_get_from_remote(last); });
    debug_row("debug_copy_from to the last worker", [&] { there.debug_copy_from(last, array); });
  }
  report.finish();
  return 0;
}

}  // namespace

int copy(int argc, char** argv, const Options& options) {
  register_global_func("bench.mpi_bandwidth", mpi_bandwidth);
  return run(argc, argv, [&](int, char**) { return controller(options); });
}

}  // namespace tutti::bench
