// Collectives of host memory by one library: by MPI, or with -DWITH_TUTTI or -DWITH_GLOO by that. tests/peers/collectives.py
// builds and runs it. Prints one line of JSON: microseconds of an operation, a median of five, by operation and bytes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

#ifdef WITH_GLOO
constexpr int kShare = 20;  // one operation of so many: by TCP
#else
constexpr int kShare = 1;
#endif

struct Case {
  const char* operation;
  long bytes;  // of an allgather: of what one rank gives
  int times;
};
constexpr Case kCases[] = {{"allreduce", 8, 20000},    {"allreduce", 1024, 10000}, {"allreduce", 65536, 500},
                           {"allreduce", 1 << 20, 50}, {"allreduce", 16 << 20, 5}, {"broadcast", 8, 20000},
                           {"broadcast", 65536, 500},  {"broadcast", 1 << 20, 50}, {"allgather", 8, 20000},
                           {"allgather", 65536, 500},  {"allgather", 1 << 20, 20}};

/// `run` does a case once, `align` brings the members together.
template <class Run, class Align>
std::vector<double> measure(Run run, Align align) {
  std::vector<double> medians;
  for (const Case& c : kCases) {
    std::vector<double> runs;
    for (int round = 0; round < 6; ++round) {
      align();
      const int times = std::max(c.times / kShare, 3);
      const auto begun = std::chrono::steady_clock::now();
      for (int i = 0; i < times; ++i) run(c);
      runs.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count() / times);
    }
    std::sort(runs.begin() + 1, runs.end());
    medians.push_back(runs[3]);
  }
  return medians;
}

void print(const std::vector<double>& medians) {
  std::string line;
  for (size_t i = 0; i < medians.size(); ++i)
    line += (i ? ", \"" : "{\"") + std::string(kCases[i].operation) + " " + std::to_string(kCases[i].bytes) +
            "\": " + std::to_string(medians[i]);
  std::puts((line + "}").c_str());
}

}  // namespace

#if defined(WITH_TUTTI)

#include "tutti/tutti.h"

namespace {

std::vector<double> medians;

void measure_on_worker() {
  const auto world = tutti::worker::world();
  const auto src = tutti::Tensor::full<float>({4 << 20}, 1), dst = tutti::Tensor::full<float>({8 << 20}, 0);
  const tutti::Tensor flag = tutti::Tensor::full<int64_t>({1}, 0);
  std::vector<std::pair<tutti::Tensor, tutti::Tensor>> operands;  // made once, as a program makes them
  for (const Case& c : kCases) {
    const long count = c.bytes / 4, total = c.operation == std::string("allgather") ? count * world.size() : count;
    operands.emplace_back(src.slice(0, count), dst.slice(0, total));
  }
  medians = measure(
      [&](const Case& c) {
        const auto& [from, to] = operands[static_cast<size_t>(&c - kCases)];
        switch (c.operation[3]) {
          case 'r': return world.allreduce(from, to);
          case 'a': return world.broadcast(from, from);
          default: return world.allgather(from, to);
        }
      },
      [&] { world.allreduce(flag, flag); });
}
const bool registered = tutti::register_global_func("peers.measure", measure_on_worker);

}  // namespace

int main(int argc, char** argv) {
  return tutti::run(argc, argv, [](int, char**) {
    tutti::Session session = tutti::Session::create();
    session.get_global_func("peers.measure")();
    session.sync_all();
    print(medians);
    return 0;
  });
}

#elif defined(WITH_GLOO)

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "collectives RANK SIZE FOLDER\n"), 1;
  auto context = std::make_shared<gloo::rendezvous::Context>(std::atoi(argv[1]), std::atoi(argv[2]));
  auto device = gloo::transport::tcp::CreateDevice("localhost");
  gloo::rendezvous::FileStore store(argv[3]);
  context->connectFullMesh(store, device);
  std::vector<float> src(4 << 20, 1), dst(8 << 20);
  const auto medians = measure(
      [&](const Case& c) {
        const auto count = static_cast<size_t>(c.bytes / 4);
        if (c.operation[3] == 'r') {
          gloo::AllreduceOptions options(context);
          options.setInput(src.data(), count);
          options.setOutput(dst.data(), count);
          options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
          if (std::getenv("PEERS_GLOO")) options.setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
          gloo::allreduce(options);
        } else if (c.operation[3] == 'a') {
          gloo::BroadcastOptions options(context);
          options.setRoot(0);
          options.setOutput(src.data(), count);
          gloo::broadcast(options);
        } else {
          gloo::AllgatherOptions options(context);
          options.setInput(src.data(), count);
          options.setOutput(dst.data(), count * static_cast<size_t>(context->size));
          gloo::allgather(options);
        }
      },
      [&] {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
      });
  if (context->rank == 0) print(medians);
}

#else

#include <mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> src(4 << 20, 1), dst(8 << 20);
  const auto medians = measure(
      [&](const Case& c) {
        const auto count = static_cast<int>(c.bytes / 4);
        switch (c.operation[3]) {
          case 'r': MPI_Allreduce(src.data(), dst.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
          case 'a': MPI_Bcast(src.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
          default: MPI_Allgather(src.data(), count, MPI_FLOAT, dst.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
        }
      },
      [] { MPI_Barrier(MPI_COMM_WORLD); });
  if (rank == 0) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    std::fprintf(stderr, "%s\n", version);
    print(medians);
  }
  MPI_Finalize();
}

#endif
