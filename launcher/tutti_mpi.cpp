// tutti-mpi: those of tutti's subcommands that run on ranks and need MPI. `tutti` becomes it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "commands.h"

int main(int argc, char** argv) try {
  CLI::App app("what tutti runs on ranks", "tutti-mpi");
  tutti::launcher::need_subcommand(app);
  int code = 0;
  tutti::launcher::add_bench(app, argc, argv, code);
  tutti::launcher::add_probe(app, code);
  if (const int wrong = tutti::launcher::parse(app, argc, argv)) return wrong;
  return tutti::launcher::end_output(code);
} catch (const std::exception& error) {
  fmt::print(stderr, "tutti: {}\n", error.what());
  return 1;
}
