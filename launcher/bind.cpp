// tutti bind, tutti verify
#include "topology/bind.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "core/env.h"
#include "core/settings.h"
#include "current_device.h"
#include "meet.h"
#include "run/process.h"
#include "topology/assign.h"
#include "topology/discover.h"
#include "topology/launcher.h"
#include "topology_file.h"
#include "tutti/error.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace tutti::topology;

struct BindOptions {
  std::string bind;
  bool keep_devices = false, json = false;
  std::vector<std::string> program;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kDevicesAreSet = "TUTTI_DEVICES_ARE_SET";  // from bind to verify: "1": the rank's GPU is device 0

std::string packed(const Self& self) {
  return nlohmann::json{{"cpus", to_string(self.cpus)}, {"variables", self.variables}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}
Self unpacked(const std::string& text) {
  const auto said = nlohmann::json::parse(text);
  return {.cpus = parse_index_set(said.at("cpus").get<std::string>()), .variables = said.at("variables")};
}

/// The job's step, which all local ranks are of; empty: nobody has told.
std::string name_of_step() {
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (const auto value = env_string(name)) return *value;
  const auto job = env_string("SLURM_JOB_ID"), step = env_string("SLURM_STEP_ID");
  return job && step ? *job + "." + *step : "";
}

/// This rank's place, by a plan that all ranks of the node come to: each has told what it sees.
struct OwnPlace {
  Node node = discovered();
  LocalRank local = local_rank(this_process);
  Self mine = self();
  Assignment assigned;
  int gpu = -1;

  OwnPlace(Binding binding, const char* command) {
    for (const Self& one : all_selves(command)) add_parts(value_in(one), node);
    assigned = assign(node, selves_, binding)[static_cast<size_t>(local.rank)];
    if (is_alone_ && (binding == Binding::kUser || bound_by(value_in(mine), node, mine.cpus) == BoundBy::kUser))
      assigned.is_bound = false, assigned.cpus = mine.cpus;
    for (size_t g = 0; g < node.gpus.size(); ++g)
      if (node.gpus[g].pci == assigned.gpu_pci && node.gpus[g].name == assigned.gpu && !assigned.gpu.empty())
        gpu = static_cast<int>(g);
  }
  void say(const std::string& what) const {
    fmt::print(stderr, "tutti: local rank {} of {}: {}\n", local.rank, local.ranks, what);
  }
  std::string words() const {
    return fmt::format("CPUs {}{}{}", to_string(assigned.cpus), gpu < 0 ? "" : ", GPU " + assigned.gpu,
                       assigned.nic.empty() ? "" : ", network card " + assigned.nic);
  }
  Placement placement() const {
    return {.cpus = assigned.cpus, .memory = assigned.is_bound ? assigned.memory : std::vector<int>()};
  }

 private:
  static Node discovered() {
    launcher::check_topology_file(settings().topology);
    return discover();
  }
  /// Only GPUs make a difference: without them nobody needs to know what the others have.
  const std::vector<Self>& all_selves(const char* command) {
    selves_.assign(static_cast<size_t>(local.ranks), mine);
    if (local.ranks == 1 || met(command)) return selves_;
    is_alone_ = true;  // nobody knows where the others are: anywhere, with the same GPUs
    for (Self& one : selves_) one = {.cpus = cpus_of(node), .variables = mine.variables};
    return selves_;
  }
  bool met(const char* command) {
    const std::string step = name_of_step();
    if (node.gpus.empty() || step.empty()) return false;
    constexpr std::chrono::seconds kPatience(10);
    const auto all = launcher::meet(step + "-" + command, local.rank, local.ranks, packed(mine), kPatience);
    try {
      if (all) std::ranges::transform(*all, selves_.begin(), unpacked);
    } catch (const std::exception&) {
      return false;
    }
    if (!all)
      say(fmt::format("not all local ranks have come to tutti {} within {} s; it is taken that they see the same GPUs", command,
                      kPatience.count()));
    return all.has_value();
  }

  std::vector<Self> selves_;
  bool is_alone_ = false;
};

/// --bind, else TUTTI_BIND.
Binding binding_of(const BindOptions& options) {
  const std::string& told = options.bind.empty() ? settings().bind : options.bind;
  return parse_binding(told.empty() ? "gpu" : told);
}

int bind_and_run(const BindOptions& options) {
  const Binding binding = binding_of(options);
  // tutti verify and sessions make the same of it
  if (options.bind.empty()) setenv("TUTTI_BIND", "gpu", 0);
  else setenv("TUTTI_BIND", options.bind.c_str(), 1);
  if (binding == Binding::kNone) return launcher::become(options.program);
  const OwnPlace place(binding, "bind");
  for (const std::string& note : place.assigned.notes) place.say(note);
  if (!place.assigned.is_bound) place.say(fmt::format("stays on CPUs {}, where it was bound", to_string(place.mine.cpus)));
  else if (const std::string problem = topology::bind(place.placement()); !problem.empty()) place.say(problem);
  if (place.assigned.is_bound) setenv("TUTTI_BOUND", "1", 1);  // they know whose it is
  const auto devices = options.keep_devices ? Variables() : first_gpu(this_process, place.node, place.gpu);
  for (const auto& [name, value] : devices) setenv(name.c_str(), value.c_str(), 1);
  setenv(kDevicesAreSet, devices.empty() ? "0" : "1", 1);
  if (place.gpu >= 0) setenv("TUTTI_GPU", place.assigned.gpu_pci.c_str(), 1);
  if (!place.assigned.nic.empty()) setenv("TUTTI_NIC", place.assigned.nic.c_str(), 1);
  return launcher::become(options.program);
}

/// PCI id of the GPU that programs take here unless they choose, as its driver says, or, without one, the variables that hide
/// GPUs.
std::string device_here(const Node& node, const std::string& vendor) {
  if (const auto told = !settings().topology.empty() ? std::nullopt : launcher::current_device(vendor)) return *told;
  std::vector<std::string> ignored;
  for (const int gpu : visible_gpus(this_process, node, ignored))
    if (node.gpus[static_cast<size_t>(gpu)].vendor == vendor) return node.gpus[static_cast<size_t>(gpu)].pci;
  return "none";
}

int verify_place(const BindOptions& options) {
  const Binding binding = binding_of(options);
  if (binding == Binding::kNone) {
    fmt::print("{}\n", options.json ? R"({"schema": "tutti.verify/1", "planned": null, "differences": []})"
                                    : "nothing is planned (TUTTI_BIND=none)");
    return 0;
  }
  const OwnPlace place(binding, "verify");
  std::vector<std::string> differences;
  if (std::string differs = topology::verify(place.placement()); !differs.empty()) differences.push_back(std::move(differs));
  const std::string planned = place.gpu < 0 ? "none" : place.assigned.gpu_pci, told = env_string("TUTTI_GPU").value_or(planned);
  if (told != planned) differences.push_back(fmt::format("GPU {}, planned {}", told, planned));
  const std::string device = place.gpu >= 0 && env_string(kDevicesAreSet) == "1"
                                 ? device_here(place.node, place.node.gpus[static_cast<size_t>(place.gpu)].vendor)
                                 : "";
  if (!device.empty() && device != planned) differences.push_back(fmt::format("device 0 is {}, planned {}", device, planned));
  if (options.json) {
    const Granted granted = topology::granted();
    const nlohmann::ordered_json json{
        {"schema", "tutti.verify/1"},
        {"host", host_name()},
        {"local_rank", place.local.rank},
        {"local_ranks", place.local.ranks},
        {"planned",
         {{"cpus", to_string(place.assigned.cpus)},
          {"memory", place.assigned.memory},
          {"gpu", place.assigned.gpu_pci},
          {"nic", place.assigned.nic}}},
        {"granted", {{"cpus", to_string(granted.cpus)}, {"memory", granted.memory}, {"device", device}}},
        {"differences", differences}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("local rank {} of {}: {}{}\n", place.local.rank, place.local.ranks, place.words(),
               differences.empty() ? "" : fmt::format("; granted: {}", fmt::join(differences, "; ")));
  }
  return differences.empty() ? 0 : 1;
}

const std::string kDefault = ". Default: TUTTI_BIND, else gpu";

}  // namespace

void launcher::add_binding(CLI::App& command, std::string& bind, const std::string& description) {
  const auto words = CLI::IsMember({"gpu", "cores", "user", "none"});
  command.add_option("--bind", bind, description)->check(words)->option_text("gpu|cores|user|none");
}

void launcher::add_bind(CLI::App& app, int& code) {
  const auto options = std::make_shared<BindOptions>();
  auto* bind = app.add_subcommand(
      "bind", "puts this rank on its cores, memory and GPU, then becomes the program: mpirun -n 4 tutti bind -- ./program");
  const std::string words =
      "gpu: cores beside the GPUs; cores: all cores in equal shares, then the nearest GPUs; "
      "user: CPUs stay, a GPU is chosen; none: nothing is done";
  add_binding(*bind, options->bind, words + kDefault);
  bind->add_flag("--keep-devices", options->keep_devices,
                 "leave CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES as they are; else this rank's GPU comes first in them");
  bind->add_option("PROGRAM", options->program, "after --: the program and its arguments")->required();
  bind->callback([options, &code] {
    options->program = program_of(options->program);
    code = bind_and_run(*options);
  });
  auto* verify = app.add_subcommand(
      "verify", "what the kernel grants this rank, and whether that is the plan: mpirun -n 4 tutti bind -- tutti verify");
  add_binding(*verify, options->bind, "as of tutti bind" + kDefault);
  verify->add_flag("--json", options->json, "\"tutti.verify/1\" of docs/formats.md, a line a rank");
  verify->callback([options, &code] { code = verify_place(*options); });
}
