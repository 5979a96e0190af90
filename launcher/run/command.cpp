#include "run/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "tutti/error.h"

namespace tutti::launcher {
namespace {

bool is_in_path(const char* program) {
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
std::string output_of(const char* command) {
  const std::unique_ptr<FILE, ClosePipe> pipe(popen(command, "re"));
  std::string text;
  std::array<char, 4096> part{};
  while (pipe && std::fgets(part.data(), part.size(), pipe.get())) text += part.data();
  return text;
}

bool has_pmix(const Site& site) { return site.srun_mpi.find("pmix") != std::string::npos; }

Launcher choose(const RunOptions& options, const Site& site) {
  if (options.launcher == Launcher::kSrun || (options.launcher == Launcher::kAuto && site.has_srun && site.in_allocation && has_pmix(site))) {
    if (!site.has_srun) throw UsageError("run: no srun in PATH");
    if (!site.in_allocation) throw UsageError("run: srun needs an allocation (SLURM_JOB_ID is not set): salloc, sbatch (`tutti script` writes one), or --launcher mpirun");
    if (!has_pmix(site))
      throw UsageError(fmt::format("run: this Slurm can't start Open MPI's ranks: srun --mpi=list has no pmix; use --launcher mpirun. It has:\n{}", site.srun_mpi));
    return Launcher::kSrun;
  }
  if (!site.has_mpirun) throw UsageError("run: no mpirun in PATH; apt-get install openmpi-bin, or load your site's module");
  return Launcher::kMpirun;
}

void add(std::vector<std::string>& words, std::initializer_list<std::string> more) { words.insert(words.end(), more); }

}  // namespace

Site this_site() {
  Site site{.has_mpirun = is_in_path("mpirun"), .has_srun = is_in_path("srun"), .in_allocation = std::getenv("SLURM_JOB_ID") != nullptr, .srun_mpi = {}};
  if (site.has_srun && site.in_allocation) site.srun_mpi = output_of("srun --mpi=list 2>&1");
  std::error_code ignored;
  if (const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored); !self.empty()) site.tutti = self;
  return site;
}

Command make_command(const RunOptions& options, const Site& site) {
  Command command{.by = choose(options, site), .words = {}, .variables = {}};
  auto& words = command.words;
  std::string hosts;
  for (const std::string& host : options.hosts) hosts += (hosts.empty() ? "" : ",") + host;
  if (command.by == Launcher::kSrun) {
    add(words, {"srun", "--mpi=pmix", "-n", std::to_string(options.ranks), "--kill-on-bad-exit=1", "--quit-on-interrupt"});
    if (!options.raw) words.emplace_back("--label");
    if (!hosts.empty()) add(words, {"-w", hosts});
    // by default Slurm's PMIx mixes two algorithms, and a rank may leave MPI_Init before another is ready for its messages: that one crashes
    command.variables = {{"SLURM_PMIX_FENCE", "tree"}};
  } else {
    add(words, {"mpirun", "-n", std::to_string(options.ranks)});
    if (!options.raw) words.emplace_back("--tag-output");
    if (!hosts.empty()) add(words, {"--host", hosts});
    // a host that drops off the network is missed after seconds; by default after minutes
    add(words, {"--mca", "oob_tcp_keepalive_time", "5", "--mca", "oob_tcp_keepalive_intvl", "2", "--mca", "oob_tcp_keepalive_probes", "3"});
    if (options.max_restarts > 0) add(words, {"-x", "TUTTI_RESTART_COUNT"});
    command.variables = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}, {"OMPI_MCA_rmaps_base_oversubscribe", "1"}};
  }
  words.insert(words.end(), options.launcher_options.begin(), options.launcher_options.end());
  if (!options.bind.empty()) add(words, {site.tutti, "bind", "--bind", options.bind, "--"});
  if (options.valgrind) add(words, {"valgrind", "--quiet", "--error-exitcode=1"});
  words.insert(words.end(), options.program.begin(), options.program.end());
  return command;
}

std::string as_shell(const Command& command) {
  const auto quoted = [](const std::string& word) {
    if (!word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") == std::string::npos) return word;
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
