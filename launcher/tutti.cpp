// The `tutti` command; a file for each group of subcommands.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "commands.h"
#include "tutti/version.h"

int main(int argc, char** argv) try {
  CLI::App app("tutti: one controller program drives every rank of an MPI job", "tutti");
  app.set_version_flag("--version", std::string(tutti::version()));
  app.require_subcommand(1);
  int code = 0;
  tutti::launcher::add_run(app, code);
  tutti::launcher::add_script(app);
  tutti::launcher::add_map(app);
  tutti::launcher::add_bind(app, code);
  tutti::launcher::add_trace(app);
  tutti::launcher::add_repl(app, code);
  tutti::launcher::add_bench(app, argc, argv, code);
  CLI11_PARSE(app, argc, argv);
  return code;
} catch (const std::exception& error) {
  fmt::print(stderr, "tutti: {}\n", error.what());
  return 1;
}
