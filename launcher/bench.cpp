// tutti bench
#include "bench.h"

#include <CLI/CLI.hpp>

#include "commands.h"

void tutti::launcher::add_bench(CLI::App& app, int argc, char** argv, int& code) {
  auto* bench = app.add_subcommand("bench", "how fast tutti is here; start it with mpirun, on the ranks to be measured");
  bench->require_subcommand(1);
  bench->add_subcommand("price", "what failure handling costs while nothing fails")->callback([argc, argv, &code] { code = bench::price(argc, argv); });
}
