// tutti trace
#include "trace/trace.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>

#include "commands.h"
#include "tutti/error.h"

namespace {

auto read(const std::string& folder) {
  std::vector<std::string> problems;
  auto sessions = tutti::trace::read_folder(folder, problems);
  for (const std::string& problem : problems) fmt::print(stderr, "tutti: left out: {}\n", problem);
  return sessions;
}

}  // namespace

void tutti::launcher::add_trace(CLI::App& app) {
  auto* trace = app.add_subcommand("trace", "what the flight recorders say (programs write them with TUTTI_TRACE=DIR)");
  need_subcommand(*trace);
  const auto folder = std::make_shared<std::string>(), output = std::make_shared<std::string>();
  auto* report =
      trace->add_subcommand("report", "in words: the first failing command, who is behind, collectives that do not fit");
  report->add_option("DIR", *folder, "the folder that TUTTI_TRACE named")->required();
  report->callback([folder] {
    for (const auto& session : read(*folder)) std::cout << trace::report(session);
  });
  auto* timeline = trace->add_subcommand("timeline", "as a Chrome trace, for https://ui.perfetto.dev");
  timeline->add_option("DIR", *folder, "the folder that TUTTI_TRACE named")->required();
  timeline->add_option("-o,--output", *output, "the file to write")->required();
  timeline->callback([folder, output] {
    const std::string text = trace::timeline(read(*folder));
    std::ofstream file(*output);
    if (!(file << text << '\n').flush()) throw SystemError(fmt::format("{}: {}", *output, std::strerror(errno)));
  });
}
