// The `tutti` command.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include "trace/trace.h"
#include "tutti/error.h"
#include "tutti/version.h"

int main(int argc, char** argv) try {
  CLI::App app("tutti: one controller program drives every rank of an MPI job", "tutti");
  app.set_version_flag("--version", std::string(tutti::version()));
  app.require_subcommand(1);

  std::string folder, output;
  auto* trace = app.add_subcommand("trace", "what the flight recorders say (programs write them with TUTTI_TRACE=DIR)");
  trace->require_subcommand(1);
  auto* report = trace->add_subcommand("report", "in words: the first failing command, who is behind, collectives that do not fit");
  report->add_option("DIR", folder, "the folder that TUTTI_TRACE named")->required();
  report->callback([&] {
    for (const auto& session : tutti::trace::read_folder(folder)) std::cout << tutti::trace::report(session);
  });
  auto* timeline = trace->add_subcommand("timeline", "as a Chrome trace, for https://ui.perfetto.dev");
  timeline->add_option("DIR", folder, "the folder that TUTTI_TRACE named")->required();
  timeline->add_option("-o,--output", output, "the file to write")->required();
  timeline->callback([&] {
    const std::string text = tutti::trace::timeline(tutti::trace::read_folder(folder));
    std::ofstream file(output);
    if (!(file << text << '\n').flush()) throw tutti::SystemError(fmt::format("{}: {}", output, std::strerror(errno)));
  });

  CLI11_PARSE(app, argc, argv);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "tutti: {}\n", error.what());
  return 1;
}
