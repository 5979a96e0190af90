#include <fmt/format.h>
#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "bench/bench.h"
#include "bench/measure.h"
#include "tutti/interop/mpi.h"
#include "tutti/tutti.h"

namespace tutti::bench {
namespace {

using namespace std::chrono_literals;
constexpr int kRounds = 20000, kWakeUps = 9;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto s = [](timeval t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return s(usage.ru_utime) + s(usage.ru_stime);
}

/// What the control plane does, by MPI alone: rank 0 broadcasts 64 bytes, the others answer.
double raw_round_us(MPI_Comm comm, int times) {
  char message[64] = {}, answer[4] = {};
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  return seconds([&] {
           for (int i = 0; i < times; ++i) {
             MPI_Bcast(message, 64, MPI_BYTE, 0, comm);
             if (rank > 0) MPI_Send(answer, 4, MPI_BYTE, 0, 1, comm);
             else
               for (int r = 1; r < size; ++r) MPI_Recv(answer, 4, MPI_BYTE, r, 1, comm, MPI_STATUS_IGNORE);
           }
         }) /
         times * 1e6;
}

/// Of one double, as a program of MPI's calls it.
double raw_allreduce_us(MPI_Comm comm, int times) {
  double value = 1, sum = 0;
  MPI_Barrier(comm);
  return seconds([&] {
           for (int i = 0; i < times; ++i) MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
         }) /
         times * 1e6;
}

double raw_rate(MPI_Comm comm, int times) {
  char message[64] = {};
  const double took = seconds([&] {
    for (int i = 0; i < times; ++i) MPI_Bcast(message, 64, MPI_BYTE, 0, comm);
    MPI_Barrier(comm);
  });
  return times / took;
}

const bool control_functions[] = {
    register_global_func("bench.add", [](int64_t a, int64_t b) { return a + b; }),
    register_global_func("bench.quick_add", [](int64_t a, int64_t b) { return a + b; }, {.function = {.quick = true}}),
    register_global_func("bench.cpu_seconds", [] { return cpu_seconds(); }),
    register_global_func(
        "bench.raw_round_us",
        [](int64_t times) { return raw_round_us(interop::communicator(worker::world()), static_cast<int>(times)); }),
    register_global_func(
        "bench.raw_allreduce_us",
        [](int64_t times) { return raw_allreduce_us(interop::communicator(worker::world()), static_cast<int>(times)); }),
    register_global_func("bench.raw_rate",
                         [](int64_t times) { return raw_rate(interop::communicator(worker::world()), static_cast<int>(times)); }),
};

double on_worker_0(const DRef& result) { return result.debug_get_from_remote(0).as<double>(); }

double calls_per_second(Session& s, const char* function) {
  constexpr int kCalls = 1000000;
  auto f = s.get_global_func(function);
  s.sync_all();
  return kCalls / seconds([&] {
           for (int i = 0; i < kCalls; ++i) f(i, 1);
           s.sync_all();
         });
}

/// By a program of eight calls, which is replayed by one command.
double replayed_calls_per_second(Session& s) {
  constexpr int kCalls = 8;
  constexpr int64_t kTimes = 2000000;
  auto f = s.get_global_func("bench.add");
  auto recording = s.record();
  for (int i = 0; i < kCalls; ++i) f(i, 1);
  const Program program = recording.finish();
  program.repeat(kTimes / 100);
  s.sync_all();
  return static_cast<double>(kCalls * kTimes) / seconds([&] {
           program.repeat(kTimes);
           s.sync_all();
         });
}

double replayed_allreduce_us(Session& s) {
  constexpr int64_t kTimes = 100000;
  const DRef src = s.empty({1}, kFloat64), dst = s.empty({1}, kFloat64);
  auto recording = s.record();
  s.allreduce(src, dst);
  const Program program = recording.finish();
  program.repeat(kTimes / 100);
  s.sync_all();
  return seconds([&] {
           program.repeat(kTimes);
           s.sync_all();
         }) /
         kTimes * 1e6;
}

double call_and_sync_us(Session& s, const char* function, int rounds = kRounds) {
  auto f = s.get_global_func(function);
  s.sync_all();
  return seconds([&] {
           for (int i = 0; i < rounds; ++i) {
             f(i, 1);
             s.sync_all();
           }
         }) /
         rounds * 1e6;
}

constexpr auto kQuiet = 1s;

double wake_up_us(Session& s) {
  auto f = s.get_global_func("bench.add");
  s.sync_all();
  std::this_thread::sleep_for(kQuiet);
  return seconds([&] {
           f(1, 1);
           s.sync_all();
         }) *
         1e6;
}

/// A thread that sleeps on a futex is woken and answers.
double raw_wake_up_us() {
  std::atomic<uint32_t> word{0}, answer{0};
  std::jthread sleeper([&] {
    word.wait(0);
    answer = 1;
  });
  std::this_thread::sleep_for(kQuiet);
  return seconds([&] {
           word = 1;
           word.notify_one();
           while (answer == 0) std::this_thread::yield();
         }) *
         1e6;
}

/// Of the rank that uses most, in percent of a core.
double idle_cpu_percent(Session& s) {
  auto cpu = s.get_global_func("bench.cpu_seconds");
  s.sync_all();
  std::this_thread::sleep_for(500ms);
  const DRef before = cpu();
  s.sync_all();
  constexpr auto kIdle = 10s;
  std::this_thread::sleep_for(kIdle);
  const DRef after = cpu();
  double most = 0;
  for (int w = 0; w < s.num_workers(); ++w)
    most = std::max(most, after.debug_get_from_remote(w).as<double>() - before.debug_get_from_remote(w).as<double>());
  return most / Seconds(kIdle).count() * 100;
}

int measure_control(const Options& options) {
  std::vector<double> starts;
  for (int i = 0; i < options.repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    Session s = Session::create();
    s.sync_all();
    starts.push_back(Seconds(std::chrono::steady_clock::now() - start).count());
  }
  Session s = Session::create();
  const bool has_mpi = s.num_workers() > 1;
  Report report(options, "control plane", s.num_workers());
  const auto raw = [&](const char* name, int64_t times) { return has_mpi ? on_worker_0(s.get_global_func(name)(times)) : 0.0; };
  for (const char* function : {"bench.add", "bench.quick_add"}) {
    const auto [ours, theirs] = paired(
        options.repeats, [&] { return calls_per_second(s, function) * 1e-6; },
        [&] { return raw("bench.raw_rate", 200000) * 1e-6; });
    report.add(
        {fmt::format("calls of {} with two ints, and sync_all", function + 6), "M calls/s", ours, theirs, "MPI_Bcast of 64 B"});
  }
  std::vector<double> rates;
  for (int i = 0; i < options.repeats; ++i) rates.push_back(replayed_calls_per_second(s) * 1e-6);
  report.add({"calls of add with two ints that a program replays, a worker", "M calls/s", median(rates), 0, ""});
  if (has_mpi) {
    const auto [ours, theirs] = paired(
        options.repeats, [&] { return replayed_allreduce_us(s); }, [&] { return raw("bench.raw_allreduce_us", 100000); });
    report.add({"allreduce of 8 B that a program replays", "us", ours, theirs, "MPI_Allreduce"});
  }
  for (const char* function : {"bench.quick_add", "bench.add"}) {
    const auto [ours, theirs] = paired(
        options.repeats, [&] { return call_and_sync_us(s, function); }, [&] { return raw("bench.raw_round_us", kRounds); });
    report.add({fmt::format("call of {} and sync_all", function + 6), "us", ours, theirs, "MPI_Bcast and replies"});
  }
  const auto [woken, raw_woken] = paired(
      std::max(options.repeats, kWakeUps), [&] { return wake_up_us(s); }, raw_wake_up_us);
  report.add({"call of add and sync_all after 1 s of quiet", "us", woken, raw_woken, "one futex wake"});
  report.add({"CPU of the busiest rank while nothing is to do", "%", idle_cpu_percent(s), 0, ""});
  report.add({"Session::create and sync_all", "ms", median(starts) * 1e3, 0, ""});
  s.shutdown();
  if (!has_mpi) try {
      std::optional<Session> first;  // later ones use its processes again
      report.add({"the process's first ProcessSession(4) and sync_all", "ms",
                  seconds([&] { first.emplace(ProcessSession(4)).sync_all(); }) * 1e3, 0, ""});
    } catch (const UsageError&) {  // started by mpirun with one rank: its own, not more
    }
  report.finish();
  return 0;
}

}  // namespace

int control(int argc, char** argv, const Options& options) {
  return run(argc, argv, [&](int, char**) { return measure_control(options); });
}

}  // namespace tutti::bench
