// tutti bench
#include "bench/bench.h"

#include <CLI/CLI.hpp>

#include "commands.h"

void tutti::launcher::add_bench(CLI::App& app, int argc, char** argv, int& code) {
  auto* bench = app.add_subcommand("bench", "how fast tutti is here; start it with mpirun, on the ranks to be measured");
  need_subcommand(*bench);
  bench->option_defaults()->always_capture_default();
  static bench::Options options;  // for the callbacks
  const auto measured = [](CLI::App* command) {
    command->add_option("--format", options.format, "table or json")->check(CLI::IsMember({"table", "json"}));
    command->add_option("--baseline", options.baseline, "what --format json wrote in an earlier run, to compare with")
        ->check(CLI::ExistingFile);
    command->add_option("--repeats", options.repeats, "runs of which the median is shown")->check(CLI::Range(1, 1000));
    return command;
  };
  measured(bench->add_subcommand("control", "calls a second, call and sync, wake-up, idle CPU, start"))
      ->callback([argc, argv, &code] { code = bench::control(argc, argv, options); });
  measured(bench->add_subcommand("copy", "host arrays to worker 0 and back, and to all, beside memcpy"))
      ->callback([argc, argv, &code] { code = bench::copy(argc, argv, options); });
  static std::string tensor_size = "256M";
  auto* redistribute =
      measured(bench->add_subcommand("redistribute", "sharded tensors that go to other places, beside MPI by hand"));
  redistribute->add_option("-s,--size", tensor_size, "of the tensor");
  redistribute->callback([argc, argv, &code] { code = bench::redistribute(argc, argv, options, tensor_size); });
  static std::string saved_size = "1G", folder = ".";
  auto* checkpoint = measured(bench->add_subcommand("checkpoint", "sharded tensors into a file and back, beside one process's"));
  checkpoint->add_option("-s,--size", saved_size, "of the tensors");
  checkpoint->add_option("--folder", folder, "where the files go; they are removed")->check(CLI::ExistingDirectory);
  checkpoint->callback([argc, argv, &code] { code = bench::checkpoint(argc, argv, options, saved_size, folder); });
  static bench::CollectiveOptions moved;
  for (const char* operation :
       {"allreduce", "reduce_scatter", "allgather", "broadcast", "scatter", "gather", "all_to_all", "sendrecv"}) {
    auto* command =
        bench->add_subcommand(operation, "beside what MPI takes in the same run; options and columns as in nccl-tests");
    command->add_option("-b,--minbytes", moved.least, "smallest size");
    command->add_option("-e,--maxbytes", moved.most, "largest size");
    command->add_option("-f,--stepfactor", moved.factor, "from a size to the next");
    command->add_option("-n,--iters", moved.iterations, "iterations of which the median is shown")->check(CLI::Range(1, 1000000));
    command->add_option("-w,--warmup_iters", moved.warm_ups, "iterations before")->check(CLI::Range(0, 1000000));
    command->add_option("-c,--check", moved.check, "1: check every element in every iteration")->check(CLI::Range(0, 1));
    command->add_option("-d,--datatype", moved.dtype, "of the elements: float32, bfloat16, int64, ...");
    command->add_option("-o,--op", moved.redop, "of reductions")->check(CLI::IsMember({"sum", "prod", "min", "max", "avg"}));
    command->add_option("-r,--root", moved.root, "rank that has, or gets, all");
    command->add_option("--memory", moved.memory, "tutti: allocated by it; foreign: by others, as a numpy array is")
        ->check(CLI::IsMember({"tutti", "foreign"}));
    command->add_option("--ccl", moved.ccl, "back end: auto, mpi or local; of host memory");
    command->add_option("--device", moved.device, "where operands lie; cuda: beside what NCCL takes, rocm: RCCL")
        ->check(CLI::IsMember({"cpu", "cuda", "rocm"}));
    command->add_option("--skew", moved.skew_us, "members come up to so many microseconds apart")->check(CLI::Range(0, 1000000));
    command->add_option("--format", moved.format, "table, osu or json")->check(CLI::IsMember({"table", "osu", "json"}));
    command->add_option("--baseline", moved.baseline, "what --format json wrote in an earlier run, to compare with")
        ->check(CLI::ExistingFile);
    command->callback([argc, argv, operation, &code] { code = bench::collective(argc, argv, operation, moved); });
  }
  bench->add_subcommand("price", "what failure handling costs while nothing fails")->callback([argc, argv, &code] {
    code = bench::price(argc, argv);
  });
}
