#include "run/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include "core/env.h"
#include "core/settings.h"
#include "topology/bind.h"
#include "topology/discover.h"
#include "tutti/error.h"

namespace tutti::launcher {
using namespace detail;
namespace {

bool is_in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view left = path ? path : "/usr/bin:/bin";
  while (!left.empty()) {
    const size_t end = std::min(left.find(':'), left.size());
    const std::string file = std::string(left.substr(0, end)) + "/" + program;
    if (access(file.c_str(), X_OK) == 0) return true;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return false;
}

struct ClosePipe {
  void operator()(FILE* pipe) const { pclose(pipe); }
};
/// srun takes the first component unless told, and mpirun knows of no other: ranks would silently crowd there.
void refuse_components(const RunOptions& options, const Site& site) {
  const auto chooses = [](const std::string& word) { return word.starts_with("--het-group"); };
  if (site.components < 2 || !options.hosts.empty() ||
      std::any_of(options.launcher_options.begin(), options.launcher_options.end(), chooses))
    return;
  throw UsageError(
      fmt::format("run: this allocation has {} components (a heterogeneous job), whose numbers of tasks srun takes from the "
                  "allocation: SLURM_PMIX_FENCE=ring srun --mpi=pmix --het-group=0-{} {} ...; or choose one: -L --het-group=0",
                  site.components, site.components - 1, options.program[0]));
}

Launcher choose(const RunOptions& options, const Site& site) {
  if (options.launcher == Launcher::kSrun ||
      (options.launcher == Launcher::kAuto && site.has_srun && site.in_allocation && has_pmix(site))) {
    if (!site.has_srun) throw UsageError("run: no srun in PATH");
    if (!site.in_allocation)
      throw UsageError(
          "run: srun needs an allocation (SLURM_JOB_ID is not set): salloc, sbatch (`tutti script` writes one), or --launcher "
          "mpirun");
    if (!has_pmix(site))
      throw UsageError(fmt::format(
          "run: this Slurm can't start Open MPI's ranks: srun --mpi=list has no pmix; use --launcher mpirun. It has:\n{}",
          site.srun_mpi));
    return Launcher::kSrun;
  }
  if (!site.has_mpirun) throw UsageError("run: no mpirun in PATH; apt-get install openmpi-bin, or load your site's module");
  return Launcher::kMpirun;
}

void add(std::vector<std::string>& words, std::initializer_list<std::string> more) { words.insert(words.end(), more); }

/// To mpirun and srun a ":" is the begin of another program: `tutti rank` gets another word for those after the first `own`
/// words.
void hide_colons(std::vector<std::string>& words, size_t own, const Site& site) {
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(own);
  if (std::find(begin, words.end(), ":") == words.end()) return;
  std::string other = "::";
  while (std::find(begin, words.end(), other) != words.end()) other += ':';
  std::replace(begin, words.end(), std::string(":"), other);
  words.insert(begin, {site.tutti, "rank", "--colon", other, "--"});
}

}  // namespace

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, ClosePipe> pipe(popen(command.c_str(), "re"));
  std::string text;
  std::array<char, 4096> part{};
  while (pipe && std::fgets(part.data(), part.size(), pipe.get())) text += part.data();
  return text;
}

std::vector<std::pair<std::string, std::string>> mpirun_variables() {
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
          {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
          {"PRTE_MCA_rmaps_default_mapping_policy", "slot:oversubscribe"}};
}

bool has_pmix(const Site& site) { return site.srun_mpi.find("pmix") != std::string::npos; }

namespace {
/// By taskset, say: to fewer CPUs than the control group leaves.
bool are_we_bound() {
  const auto granted = topology::granted().cpus;
  if (granted.size() >= static_cast<size_t>(sysconf(_SC_NPROCESSORS_ONLN)) || !settings().topology.empty()) return false;
  const auto all = topology::usable_cpus();
  return (granted & all) != all;
}
}  // namespace

namespace {
bool has_prrte() {
  int major = 0;
  return std::sscanf(output_of("mpirun --version 2>/dev/null").c_str(), "mpirun (Open MPI) %d.", &major) == 1 && major >= 5;
}
/// All ranks start on this host, in this folder: nothing says else.
bool is_here(const RunOptions& options) {
  const auto moves = [](std::string_view word) {
    if (word.starts_with("--")) word.remove_prefix(1);
    return word == "-H" || word.starts_with("-host") || word.starts_with("-machinefile") || word.starts_with("-wd") ||
           word == "-path";
  };
  return options.hosts.empty() && std::none_of(options.launcher_options.begin(), options.launcher_options.end(), moves);
}
/// Of an allocation that was asked for by tasks' GPUs, or all nodes'; 0: of another, or nodes have different numbers.
int gpus_per_node(int tasks) {
  if (env_string("SLURM_GPUS_PER_NODE") || env_string("SLURM_TASKS_PER_NODE").value_or("").find(',') != std::string::npos)
    return 0;  // "3,1"
  const auto number = [](const char* name) {
    const std::string text = env_string(name).value_or("");
    return !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos ? std::stoll(text)
                                                                                                         : 0LL;  // not a100:8
  };
  const auto nodes = number("SLURM_JOB_NUM_NODES"), of_task = number("SLURM_GPUS_PER_TASK"), here = number("SLURM_GPUS_ON_NODE");
  const auto all = of_task > 0 ? of_task * tasks
                   : here > 0  ? number("SLURM_GPUS")
                               : 0;  // of all nodes' the daemons may get one each, or too many
  const bool is_even = nodes > 0 && all % nodes == 0 && (here == 0 || here == all / nodes);
  return is_even ? static_cast<int>(all / nodes) : 0;
}
}  // namespace

Site this_site() {
  Site site{.has_mpirun = is_in_path("mpirun"),
            .has_srun = is_in_path("srun"),
            .has_prrte = has_prrte(),
            .in_allocation = std::getenv("SLURM_JOB_ID") != nullptr,
            .srun_mpi = {},
            .tutti = this_program()};
  site.is_bound = are_we_bound();
  site.has_cluster = site.has_srun && (env_string("SLURM_CONF") || access("/etc/slurm/slurm.conf", F_OK) == 0 ||
                                       access("/run/slurm/conf/slurm.conf", F_OK) == 0);
  const auto step = env_string("SLURM_STEP_ID");
  site.in_step = step && *step != "4294967290";  // that is salloc's own interactive one, which takes nothing from others
  if (site.in_allocation) {
    constexpr int kMost = 1 << 24;
    const auto number = [](const char* name, int64_t otherwise) { return env_int(name, otherwise, 1, kMost); };
    site.components = static_cast<int>(number("SLURM_HET_SIZE", 1));
    site.tasks = static_cast<int>(
        number("SLURM_NTASKS", std::min<int64_t>(number("SLURM_JOB_NUM_NODES", 1) * number("SLURM_NTASKS_PER_NODE", 1), kMost)));
    site.gpus_per_node = gpus_per_node(site.tasks);
    site.cpus_per_task = env_string("SLURM_CPUS_PER_TASK").value_or("");
  }
  if (site.has_srun && site.in_allocation) site.srun_mpi = output_of("timeout -k 1 10 srun --mpi=list 2>&1");
  return site;
}

std::string this_program() {
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return self.empty() ? "tutti" : self.string();
}

Command make_command(const RunOptions& options, const Site& site) {
  refuse_components(options, site);
  Command command{.by = choose(options, site), .words = {}, .variables = {}};
  command.by_prrte = command.by == Launcher::kMpirun && site.has_prrte;
  auto& words = command.words;
  std::string hosts;
  const bool by_srun = command.by == Launcher::kSrun;  // which knows no a:4
  for (const std::string& host : options.hosts)
    hosts += (hosts.empty() ? "" : ",") + (by_srun ? host.substr(0, host.find(':')) : host);
  if (by_srun) {
    add(words, {"srun", "--mpi=pmix", "-n", std::to_string(options.ranks), "--kill-on-bad-exit=1", "--quit-on-interrupt"});
    if (options.crowds) words.emplace_back("--overcommit");
    if (options.crowds || site.in_step) words.emplace_back("--overlap");  // else it would wait for the step that it is started in
    if (!options.raw) words.emplace_back("--label");
    if (!hosts.empty()) add(words, {"-w", hosts});
    if (!hosts.empty() && hosts.find('[') == std::string::npos)  // else it takes as many nodes as the allocation has
      add(words, {"-N", std::to_string(std::min(options.ranks,
                                                static_cast<int>(std::set(options.hosts.begin(), options.hosts.end()).size())))});
    // by default Slurm's PMIx mixes two algorithms, and a rank may leave MPI_Init before another is ready for its messages: that
    // one crashes (docs/cluster.md)
    command.variables = {{"SLURM_PMIX_FENCE", "ring"}};
    // since Slurm 22.05 srun no longer takes it from the allocation
    if (!site.cpus_per_task.empty() && !options.crowds && !site.in_step && options.ranks <= site.tasks)
      command.variables.emplace_back("SRUN_CPUS_PER_TASK", site.cpus_per_task);
  } else {
    if (site.gpus_per_node >
        0) {  // mpirun starts its daemons as a step of one task a node: told a task's GPUs, it would have one for all its ranks
      add(words, {"env", "-u", "SLURM_GPUS", "-u", "SLURM_GPUS_PER_TASK"});
      command.variables.emplace_back("SLURM_GPUS_PER_NODE", std::to_string(site.gpus_per_node));
    }
    add(words, {"mpirun", "-n", std::to_string(options.ranks)});
    if (!hosts.empty()) add(words, {"--host", hosts});
    // a host that drops off the network is missed after seconds; by default after minutes
    for (const auto& [name, value] : {std::pair("time", "3"), std::pair("intvl", "1"), std::pair("probes", "4")})
      add(words, {site.has_prrte ? "--prtemca" : "--mca", fmt::format("oob_tcp_keepalive_{}", name), value});
    for (char** entry = environ; *entry; ++entry)  // mpirun takes no others along; where to, a file or a batch system may tell it
      if (const std::string_view text = *entry; text.starts_with("TUTTI_"))
        add(words, {"-x", std::string(text.substr(0, text.find('=')))});
    const auto binds = [](const std::string& word) {
      return word.starts_with("--bind-to") || word.starts_with("-bind-to") || word.starts_with("--cpu-") ||
             word.starts_with("--map-by") || word == "-rf" || word == "--rankfile";
    };
    if (site.is_bound && std::none_of(options.launcher_options.begin(), options.launcher_options.end(), binds))
      add(words, {"--bind-to", "none"});  // mpirun would leave where we are
    for (const std::string& name : options.exported) add(words, {"-x", name});
    for (auto& variable : mpirun_variables()) command.variables.push_back(std::move(variable));
    // Open MPI 5 asks the kernel for routes, and each rank complains of an address that has none to itself
    if (site.has_prrte && !site.in_allocation && is_here(options))
      command.variables.emplace_back("OMPI_MCA_reachable", "weighted");
    if (site.in_step)
      command.variables.emplace_back("SLURM_OVERLAP",
                                     "1");  // for its daemons' srun, which would wait for the step that it is started in
  }
  words.insert(words.end(), options.launcher_options.begin(), options.launcher_options.end());
  const size_t own = words.size();
  if (command.by == Launcher::kMpirun && !options.raw && !options.dry_run) {  // its own --tag-output loses parts of floods
    add(words, {site.tutti, "rank", "--frames"});
    if (options.plain) words.emplace_back("--plain");
    words.emplace_back("--");
  }
  if (!options.bind.empty()) add(words, {site.tutti, "bind", "--bind", options.bind, "--"});
  if (options.gdb >= 0) add(words, {site.tutti, "rank", "--gdb", std::to_string(options.gdb), "--"});
  if (options.valgrind) add(words, {"valgrind", "--quiet", "--error-exitcode=1"});
  words.insert(words.end(), options.program.begin(), options.program.end());
  hide_colons(words, own, site);
  return command;
}

int why_not_startable(const RunOptions& options) {
  constexpr int kNotExecutable = 126, kNotFound = 127;
  const std::string& program = options.program[0];
  if (!is_here(options) || std::getenv("SLURM_JOB_ID")) return 0;
  if (program.find('/') == std::string::npos) return is_in_path(program) ? 0 : kNotFound;
  if (access(program.c_str(), F_OK) != 0) return kNotFound;
  return access(program.c_str(), X_OK) == 0 && !std::filesystem::is_directory(program) ? 0 : kNotExecutable;
}

std::string as_shell(const Command& command) {
  const auto quoted = [](const std::string& word) {
    if (!word.empty() &&
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") == std::string::npos)
      return word;
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
  };
  std::string text;
  for (const auto& [name, value] : command.variables) text += name + "=" + quoted(value) + " ";
  for (const std::string& word : command.words) text += quoted(word) + " ";
  text.pop_back();
  return text;
}

}  // namespace tutti::launcher
