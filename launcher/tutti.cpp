// The `tutti` command; a file for each group of subcommands.
#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "commands.h"
#include "core/env.h"

int main(int argc, char** argv) try {
  for (int stream = 0; stream < 3; ++stream)  // who has closed one must not find our own files there
    if (fcntl(stream, F_GETFD) < 0) [[maybe_unused]]
      const int opened = open("/dev/null", O_RDWR);
  CLI::App app("tutti: one controller program drives every rank of an MPI job", "tutti");
  app.set_version_flag("--version", TUTTI_VERSION);
  tutti::launcher::need_subcommand(app);
  int code = 0;
  tutti::launcher::add_run(app, code);
  tutti::launcher::add_rank(app, code);
  tutti::launcher::add_test(app, code);
  tutti::launcher::add_doctor(app, code);
  tutti::launcher::add_script(app);
  tutti::launcher::add_map(app);
  tutti::launcher::add_bind(app, code);
  tutti::launcher::add_trace(app);
  tutti::launcher::add_repl(app, code);
  tutti::launcher::add_bench(app, argc, argv, code);
  tutti::launcher::add_reference(app);
  if (const int wrong = tutti::launcher::parse(app, argc, argv)) return wrong;
  return tutti::launcher::end_output(code);
} catch (const tutti::detail::SetUpError& error) {
  fmt::print(stderr, "tutti: {}\n", error.what());
  return 99;
} catch (const std::exception& error) {
  fmt::print(stderr, "tutti: {}\n", error.what());
  return 1;
}
