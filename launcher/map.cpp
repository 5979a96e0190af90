// tutti map
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>

#include "commands.h"
#include "map_svg.h"
#include "topology/discover.h"
#include "topology/report.h"
#include "tutti/error.h"

namespace {

using namespace tutti;

struct Options {
  int ranks = 0;
  std::string topology, svg;
  topology::Policy policy = topology::Policy::kGpu;
  bool json = false;
};

void map(const Options& options) {
  const topology::Node node = options.topology.empty() ? topology::discover() : topology::read_topology(options.topology);
  const int ranks = options.ranks > 0 ? options.ranks : static_cast<int>(node.gpus.empty() ? node.numa.size() : node.gpus.size());
  const auto placements = topology::plan(node, ranks, options.policy);
  if (!options.svg.empty()) {
    std::ofstream file(options.svg);
    if (!(file << launcher::map_svg(node, placements)).flush()) throw SystemError(fmt::format("{}: {}", options.svg, std::strerror(errno)));
  }
  if (options.json) std::cout << topology::to_json(node, placements) << '\n';
  else if (options.svg.empty()) std::cout << topology::to_table(node, placements);
}

}  // namespace

void launcher::add_map(CLI::App& app) {
  auto* command = app.add_subcommand("map", "which GPU, cores, memory and network card each rank of a node gets");
  const auto options = std::make_shared<Options>();
  command->add_option("-n,--ranks", options->ranks, "ranks on the node; default: one a GPU, or a NUMA node")->check(CLI::Range(1, 4096));
  command->add_option("--topology", options->topology, "another machine's XML, as `lstopo FILE.xml` writes it; default: this machine");
  const std::map<std::string, topology::Policy> policies{{"gpu", topology::Policy::kGpu}, {"cores", topology::Policy::kCores}};
  command->add_option("--bind", options->policy, "gpu: cores beside the GPUs; cores: all cores in equal shares, then the nearest GPUs")
      ->transform(CLI::CheckedTransformer(policies, CLI::ignore_case))->default_str("gpu");
  command->add_flag("--json", options->json, "\"tutti.map/1\" of docs/formats.md");
  command->add_option("--svg", options->svg, "a file for a picture");
  command->callback([options] { map(*options); });
}
