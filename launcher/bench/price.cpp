#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "bench/bench.h"
#include "bench/measure.h"
#include "collective/collectives.h"
#include "control/segment/recorder.h"
#include "control/worker/worker.h"
#include "tutti/interop/mpi.h"
#include "tutti/tutti.h"

namespace tutti::bench {
using namespace detail;
namespace {

/// Takes it on trust that all members come, with equal operands.
class NoAgreement final : public Agreement {
 public:
  CollectiveId next_id(CommKey key) override { return {key, 0, index_++}; }
  const std::vector<Arrival>& agree(Arrival&) override { return arrivals_; }
  void ends(bool) override {}
  void decline(const CollectiveId&) override {}
  void tell_device_loss(const DeviceLoss&) override {}
  [[noreturn]] void broken(std::string_view, std::string_view why) override { throw std::runtime_error(std::string(why)); }
  Origin here() const override { return {}; }

 private:
  uint32_t index_ = 0;
  std::vector<Arrival> arrivals_;
};

double now_ms() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
double thrown_at = 0;

enum class PriceWay : int64_t { kOurs, kWithoutAgreement, kMpi };

const bool price_functions[] = {
    register_global_func("bench.two_ints", [](int64_t a, int64_t b) { return a + b; }),
    register_global_func("bench.recorder", [](bool on) { Worker::current()->recorder().pause(!on); }),
    register_global_func("bench.thrown_at", [] { return thrown_at; }),
    // the last worker throws; the others say when they were told
    register_global_func("bench.told_at",
                         [] {
                           if (worker::id() == worker::count() - 1) {
                             thrown_at = now_ms();
                             throw std::runtime_error("on purpose");
                           }
                           const auto one = Tensor::full<float>({1}, 1);
                           try {
                             worker::world().allreduce(one, one);
                           } catch (const RemoteError&) {
                             return now_ms();
                           }
                           throw std::logic_error("an allreduce without the last worker");
                         }),
    // microseconds of one allreduce of n floats
    register_global_func("bench.allreduce",
                         [](int64_t n, int64_t times, int64_t way) {
                           const auto src = Tensor::full<float>({n}, 1), dst = Tensor::full<float>({n}, 0);
                           const Comm all = worker::world();
                           MPI_Comm comm = way == int64_t(PriceWay::kOurs) ? MPI_COMM_NULL : interop::communicator(all);
                           NoAgreement none;
                           Collectives bare({.worker = worker::id(), .mpi_parent = &comm}, none);
                           const Collectives::Members members = Worker::current()->world();
                           const auto once = [&] {
                             switch (PriceWay{way}) {
                               case PriceWay::kOurs: return all.allreduce(src, dst);
                               case PriceWay::kWithoutAgreement:
                                 return bare.run(members, {.op = CollectiveOp::kAllreduce, .src = &src, .dst = &dst});
                               case PriceWay::kMpi:
                                 MPI_Allreduce(src.data(), dst.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, comm);
                             }
                           };
                           once();
                           all.barrier();
                           const double took = seconds([&] {
                             for (int64_t i = 0; i < times; ++i) once();
                           });
                           for (float x : dst.values<float>())
                             if (x != static_cast<float>(worker::count())) throw std::runtime_error("a wrong sum");
                           return took / static_cast<double>(times) * 1e6;
                         }),
};

double recorder_ns() {
  struct Memory {
    alignas(64) std::byte bytes[Recorder::kBytes];
  };
  const auto memory = std::make_unique<Memory>();
  Recorder recorder(memory->bytes);
  constexpr int kTimes = 1000000;
  const ShortName name("a.function.of.some.name");
  return seconds([&] {
           for (uint64_t i = 0; i < kTimes; ++i) {
             recorder.begin_command(i, Action::kCallPacked, true);
             recorder.name_function(name);
             recorder.end_command(Record::State::kDone);
           }
         }) /
         kTimes * 1e9;
}

double calls_per_second(Session& s) {
  auto f = s.get_global_func("bench.two_ints");
  constexpr int kCalls = 200000;
  return kCalls / seconds([&] {
           for (int i = 0; i < kCalls; ++i) f(i, 1);
           s.sync_all();
         });
}

double allreduce_us(Session& s, int64_t n, PriceWay way) {
  const int64_t times = n < 1000 ? 20000 : 1000;
  DRef took = s.get_global_func("bench.allreduce")(n, times, int64_t(way));
  double slowest = 0;
  for (int w = 0; w < s.num_workers(); ++w) slowest = std::max(slowest, took.debug_get_from_remote(w).as<double>());
  return slowest;
}

/// From an exception to the last of the others in a collective that is told of it; of ranks with one clock.
double told_after_ms(Session& s) {
  const DRef told = s.get_global_func("bench.told_at")();
  try {
    s.sync_all();
  } catch (const RemoteError&) {
  }
  double last = 0;
  for (int w = 0; w < s.num_workers() - 1; ++w) last = std::max(last, told.debug_get_from_remote(w).as<double>());
  return last - s.get_global_func("bench.thrown_at")().debug_get_from_remote(s.num_workers() - 1).as<double>();
}

int measure_price(int, char**) {
  Session s = Session::create();
  fmt::print("what failure handling costs while nothing fails; {} workers, medians of 9 paired runs\n", s.num_workers());
  fmt::print("  {:<48} {:>12.1f} ns a command\n", "flight recorder alone", median({recorder_ns(), recorder_ns(), recorder_ns()}));
  if (s.num_workers() > 1) {
    std::vector<double> told;
    for (int i = 0; i < 9; ++i) told.push_back(told_after_ms(s));
    fmt::print("  {:<48} {:>12.2f} ms, the first time {:.2f}\n", "an exception, until the others are told", median(told),
               told.front());
  }
  auto with_recorder = [&](bool on, auto measure) {
    s.get_global_func("bench.recorder")(on);
    s.sync_all();
    return measure();
  };
  auto row = [](const std::string& what, double ours, double theirs, const char* unit, const char* against) {
    fmt::print("  {:<48} {:>12.2f} {:<10} {:>12.2f} {:<26} ratio {:.3f}\n", what, ours, unit, theirs, against, ours / theirs);
  };
  {
    const auto [on, off] = paired(
        9, [&] { return with_recorder(true, [&] { return calls_per_second(s) * 1e-6; }); },
        [&] { return with_recorder(false, [&] { return calls_per_second(s) * 1e-6; }); });
    row("dispatch with the recorder", on, off, "M calls/s", "without");
  }
  for (const char* ccl : {"mpi", "local"}) {
    if (std::string_view(ccl) == "local" && s.num_workers() > 1 && s.kind() != "mpi") continue;
    try {
      s.init_ccl(ccl);
      s.sync_all();
    } catch (const RemoteError&) {
      continue;  // local: of one node only
    }
    for (int64_t n : {int64_t{2}, int64_t{16384}}) {
      const auto [on, off] = paired(
          9, [&] { return with_recorder(true, [&] { return allreduce_us(s, n, PriceWay::kOurs); }); },
          [&] { return with_recorder(false, [&] { return allreduce_us(s, n, PriceWay::kOurs); }); });
      row(fmt::format("allreduce of {} B ({}) with the recorder", n * 4, ccl), on, off, "us", "without");
      s.get_global_func("bench.recorder")(true);
      for (const auto& [way, against] :
           {std::pair(PriceWay::kWithoutAgreement, "without (mpi)"), std::pair(PriceWay::kMpi, "MPI_Allreduce alone")}) {
        const auto [ours, theirs] = paired(
            9, [&] { return allreduce_us(s, n, PriceWay::kOurs); }, [&, w = way] { return allreduce_us(s, n, w); });
        row(fmt::format("allreduce of {} B ({}) with agreement", n * 4, ccl), ours, theirs, "us", against);
      }
    }
  }
  return 0;
}

}  // namespace

int price(int argc, char** argv) { return run(argc, argv, measure_price); }

}  // namespace tutti::bench
