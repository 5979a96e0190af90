// tutti bench
#include "bench/bench.h"

#include <CLI/CLI.hpp>

#include "commands.h"

void tutti::launcher::add_bench(CLI::App& app, int argc, char** argv, int& code) {
  auto* bench = app.add_subcommand("bench", "how fast tutti is here; start it with mpirun, on the ranks to be measured");
  bench->require_subcommand(1);
  static bench::Options options;  // for the callbacks
  const auto measured = [](CLI::App* command) {
    command->add_option("--format", options.format, "table or json")->check(CLI::IsMember({"table", "json"}));
    command->add_option("--baseline", options.baseline, "what --format json wrote in an earlier run, to compare with")->check(CLI::ExistingFile);
    command->add_option("--repeats", options.repeats, "runs of which the median is shown")->check(CLI::Range(1, 1000));
    return command;
  };
  measured(bench->add_subcommand("control", "calls a second, call and sync, wake-up, idle CPU, start"))->callback([argc, argv, &code] { code = bench::control(argc, argv, options); });
  bench->add_subcommand("price", "what failure handling costs while nothing fails")->callback([argc, argv, &code] { code = bench::price(argc, argv); });
}
