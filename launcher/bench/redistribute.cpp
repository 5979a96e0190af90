// Sharded tensors that go to other places, beside what a program would write by hand with MPI, and beside memcpy.
#include <fmt/format.h>
#include <mpi.h>

#include <cstring>
#include <string>

#include "bench/bench.h"
#include "bench/collective_report.h"
#include "bench/measure.h"
#include "tutti/distributed.h"
#include "tutti/interop/mpi.h"
#include "tutti/tutti.h"

namespace tutti::bench {
namespace {

using namespace distributed;

/// The same transitions of a (rows, columns) tensor of float32, by MPI: on each worker, with memory that is kept.
class ByHand {
 public:
  ByHand(int64_t rows, int64_t columns)
      : rows_(rows),
        columns_(columns),
        whole_(Tensor::full<float>({rows, columns}, 1)),
        other_(Tensor::full<float>({rows, columns}, 1)) {}

  void run(const std::string& what) {
    const MPI_Comm comm = interop::communicator(worker::world());
    const auto part = static_cast<int>(rows_ * columns_ / worker::count());
    void *from = whole_.data(), *to = other_.data();
    if (what == "S[0] to S[1]")
      pack(), MPI_Alltoall(to, part / worker::count(), MPI_FLOAT, from, part / worker::count(), MPI_FLOAT, comm);
    else if (what == "S[0] to R") MPI_Allgather(from, part, MPI_FLOAT, to, part, MPI_FLOAT, comm);
    else if (what == "P to S[0]") MPI_Reduce_scatter_block(from, to, part, MPI_FLOAT, MPI_SUM, comm);
    else if (what == "P to R") MPI_Allreduce(from, to, part * worker::count(), MPI_FLOAT, MPI_SUM, comm);
    else std::memcpy(to, from, static_cast<size_t>(part) * 4);
  }

 private:
  /// What each receiver gets, one after another; it comes in rows, and lies where it belongs.
  void pack() const {
    const int64_t rows = rows_ / worker::count(), columns = columns_ / worker::count();
    const auto* from = static_cast<const float*>(whole_.data());
    auto* to = static_cast<float*>(other_.data());
    for (int64_t receiver = 0; receiver < worker::count(); ++receiver)
      for (int64_t row = 0; row < rows; ++row, to += columns)
        std::memcpy(to, from + row * columns_ + receiver * columns, static_cast<size_t>(columns) * 4);
  }

  int64_t rows_, columns_;
  Tensor whole_, other_;
};

int controller(const Options& options, const std::string& size) {
  Session s = Session::create();
  const int workers = s.num_workers();
  const int64_t columns = 1024 * workers, rows = std::max<int64_t>(parse_size(size) / 4 / columns / workers, 1) * workers,
                bytes = rows * columns * 4, p = workers;
  Report report(options, fmt::format("a tensor of {} MiB of float32 goes to other places", bytes >> 20), workers);
  const DeviceMesh mesh({workers});
  const DRef by_hand = s.get_global_func("bench.by_hand")(rows, columns);
  const DPackedFunc run = s.get_global_func("bench.run_by_hand");
  const struct {
    const char *from, *to, *against;
    int64_t moved;
  } transitions[] = {{"S[0]", "S[1]", "pack, MPI_Alltoall", bytes * (p - 1) / p},
                     {"S[0]", "R", "MPI_Allgather", bytes * (p - 1)},
                     {"P", "S[0]", "MPI_Reduce_scatter", bytes * (p - 1)},
                     {"P", "R", "MPI_Allreduce", 2 * bytes * (p - 1)}};
  bool is_right = true;
  for (const auto& [from, to, against, moved] : transitions) {
    if (workers == 1) break;
    const DTensor x = random(s, {{{rows, columns}}, mesh, Placement::from_text(from)});
    is_right &= Value(x.redistribute(Placement::from_text(to)).full()) == Value(x.full());
    const std::string what = fmt::format("{} to {}", from, to);
    const auto rate = [&](int64_t of, auto once) {
      return static_cast<double>(of) / seconds([&] { once(), s.sync_all(); }) * 1e-9;
    };
    const auto ours = [&, moved = moved, to = to] { return rate(moved, [&] { x.redistribute(Placement::from_text(to)); }); };
    const auto [mine, raw] =
        paired(options.repeats, ours, [&, moved = moved] { return rate(moved, [&] { run(by_hand, what); }); });
    report.add({what, "GB/s", mine, raw, against});
    const auto [again, copied] = paired(options.repeats, ours, [&] { return rate(bytes, [&] { run(by_hand, "memcpy"); }); });
    report.add({what, "GB/s", again, copied, "memcpy by all"});
  }
  report.finish();
  if (!is_right) fmt::print(stderr, "redistribute: data was wrong\n");
  return is_right ? 0 : 1;
}

}  // namespace

int redistribute(int argc, char** argv, const Options& options, const std::string& size) {
  register_global_func("bench.by_hand", [](int64_t rows, int64_t columns) { return std::make_shared<ByHand>(rows, columns); });
  register_global_func("bench.run_by_hand",
                       [](const std::shared_ptr<ByHand>& by_hand, const std::string& what) { by_hand->run(what); });
  return run(argc, argv, [&](int, char**) { return controller(options, size); });
}

}  // namespace tutti::bench
