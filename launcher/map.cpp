// tutti map
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>

#include "commands.h"
#include "core/settings.h"
#include "map_svg.h"
#include "topology/discover.h"
#include "topology/launcher.h"
#include "topology/report.h"
#include "topology_file.h"
#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

struct MapOptions {
  int ranks = 0;
  std::string topology, svg;
  topology::Policy policy = topology::Policy::kGpu;
  bool json = false;
};

void map(const MapOptions& options) {
  launcher::check_topology_file(options.topology.empty() ? settings().topology : options.topology);
  topology::Node node = options.topology.empty() ? topology::discover() : topology::read_topology(options.topology);
  std::vector<int> visible(node.gpus.size());
  std::iota(visible.begin(), visible.end(), 0);
  if (options.topology.empty()) {
    std::vector<std::string> notes;
    topology::add_parts(topology::this_process, node);
    visible = topology::visible_gpus(topology::this_process, node, notes);
    for (const std::string& note : notes) fmt::print(stderr, "tutti: {}\n", note);
  }
  const size_t ranks = options.ranks > 0 ? static_cast<size_t>(options.ranks)
                       : visible.empty() ? node.numa.size()
                                         : visible.size();
  const auto placements = topology::plan(node, std::vector<topology::Limits>(ranks, {{}, visible}), options.policy);
  if (!options.svg.empty()) {
    std::ofstream file(options.svg);
    if (!(file << launcher::map_svg(node, placements)).flush())
      throw SystemError(fmt::format("{}: {}", options.svg, std::strerror(errno)));
  }
  if (options.json) std::cout << topology::to_json(node, placements) << '\n';
  else if (options.svg.empty()) std::cout << topology::to_table(node, placements);
}

}  // namespace

void launcher::add_map(CLI::App& app) {
  auto* command = app.add_subcommand("map", "which GPU, cores, memory and network card each rank of a node gets");
  const auto options = std::make_shared<MapOptions>();
  command->add_option("-n,--ranks", options->ranks, "ranks on the node; default: one a GPU, or a NUMA node")
      ->check(CLI::Range(1, 4096));
  command->add_option("--topology", options->topology,
                      "another machine's XML, as `lstopo FILE.xml` writes it; default: this machine");
  const auto choose = [options](const std::string& word) {
    options->policy = word == "cores" ? topology::Policy::kCores : topology::Policy::kGpu;
  };
  const char* help = "gpu: cores beside the GPUs; cores: all cores in equal shares, then the nearest GPUs. Default: gpu";
  auto* bind = command->add_option_function<std::string>("--bind", choose, help);
  bind->check(CLI::IsMember({"gpu", "cores"}))->option_text("gpu|cores");
  command->add_flag("--json", options->json, "\"tutti.map/1\" of docs/formats.md");
  command->add_option("--svg", options->svg, "a file for a picture");
  command->callback([options] { map(*options); });
}
