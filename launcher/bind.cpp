// tutti bind, tutti verify
#include "topology/bind.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "commands.h"
#include "topology/discover.h"
#include "topology/launcher.h"
#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::topology;

struct Options {
  Policy policy = Policy::kGpu;
  bool keep_devices = false;
  std::vector<std::string> program;
};

/// This rank's place, by a plan that all ranks of the node come to by themselves.
struct Place {
  Node node = discover();
  LocalRank local = local_rank(this_process);
  IndexSet before = granted().cpus;
  BoundBy by = bound_by(this_process, node, before);
  std::vector<int> visible;
  Placement placement;

  explicit Place(Policy policy) {
    std::vector<std::string> notes;
    visible = visible_gpus(this_process, node, notes);
    for (const std::string& note : notes) say(note);
    const bool alone_and_bound = by == BoundBy::kUser && local.ranks == 1;  // else nobody here knows where the others are
    const std::vector<Limits> all(static_cast<size_t>(local.ranks), {alone_and_bound ? before & cpus_of(node) : cpus_of(node), visible});
    placement = plan(node, all, policy)[static_cast<size_t>(local.rank)];
    if (by != BoundBy::kUser) return;
    placement.cpus = before;
    placement.memory = {};
  }
  void say(const std::string& what) const { fmt::print(stderr, "tutti: local rank {} of {}: {}\n", local.rank, local.ranks, what); }
  std::string words() const {
    return fmt::format("CPUs {}{}{}", to_string(placement.cpus), placement.gpu < 0 ? "" : ", GPU " + node.gpus[static_cast<size_t>(placement.gpu)].name,
                       placement.nic < 0 ? "" : ", network card " + node.nics[static_cast<size_t>(placement.nic)].name);
  }
};

int bind_and_run(const Options& options) {
  const Place place(options.policy);
  if (place.by == BoundBy::kUser) place.say(fmt::format("stays on CPUs {}, where it was bound", to_string(place.before)));
  else if (const std::string problem = topology::bind(place.placement); !problem.empty()) place.say(problem);
  if (place.by != BoundBy::kUser) setenv("TUTTI_BOUND", "1", 1);  // tutti verify and sessions know whose it is
  setenv("TUTTI_BIND", options.policy == Policy::kCores ? "cores" : "gpu", 0);  // and make the same of it
  if (!options.keep_devices)
    for (const auto& [name, value] : first_gpu(place.node, place.visible, place.placement.gpu)) setenv(name.c_str(), value.c_str(), 1);
  if (place.placement.gpu >= 0) setenv("TUTTI_GPU", place.node.gpus[static_cast<size_t>(place.placement.gpu)].pci.c_str(), 1);
  if (place.placement.nic >= 0) setenv("TUTTI_NIC", place.node.nics[static_cast<size_t>(place.placement.nic)].name.c_str(), 1);
  std::vector<std::string> words = options.program;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int code = errno == ENOENT ? 127 : 126;
  fmt::print(stderr, "tutti: {}: {}\n", words[0], std::strerror(errno));
  return code;
}

int verify_place(const Options& options) {
  const Place place(options.policy);
  const std::string differs = topology::verify(place.placement);
  fmt::print("local rank {} of {}: {}{}\n", place.local.rank, place.local.ranks, place.words(), differs.empty() ? "" : fmt::format("; granted: {}", differs));
  return differs.empty() ? 0 : 1;
}

void add_policy(CLI::App& command, Options& options) {
  const std::map<std::string, Policy> policies{{"gpu", Policy::kGpu}, {"cores", Policy::kCores}};
  command.add_option("--bind", options.policy, "gpu: cores beside the GPUs; cores: all cores in equal shares, then the nearest GPUs")
      ->transform(CLI::CheckedTransformer(policies, CLI::ignore_case))->default_str("gpu");
}

}  // namespace

void launcher::add_bind(CLI::App& app, int& code) {
  const auto options = std::make_shared<Options>();
  auto* bind = app.add_subcommand("bind", "puts this rank on its cores, memory and GPU, then becomes the program: mpirun -n 4 tutti bind -- ./program");
  add_policy(*bind, *options);
  bind->add_flag("--keep-devices", options->keep_devices, "leave CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES as they are; else this rank's GPU comes first in them");
  bind->add_option("PROGRAM", options->program, "after --: the program and its arguments")->required();
  bind->callback([options, &code] { code = bind_and_run(*options); });
  auto* verify = app.add_subcommand("verify", "what the kernel grants this rank, and whether that is the plan: mpirun -n 4 tutti bind -- tutti verify");
  add_policy(*verify, *options);
  verify->callback([options, &code] { code = verify_place(*options); });
}
