// Whether ranks start, on this host and on others, and hear each other.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/env.h"
#include "doctor/checks.h"
#include "run/job.h"
#include "tutti/error.h"

namespace tutti::launcher {
using namespace detail;
namespace {

struct Answer {
  std::vector<nlohmann::json> ranks;  // what tutti-mpi's probe says of each
  Outcome outcome;
  std::string output;
  bool is_well() const { return outcome.code == 0 && !ranks.empty(); }
};

Answer start_probe(RunOptions job, int ranks) {
  job.ranks = ranks;
  job.crowds = true;
  job.program = {this_program() + "-mpi", "probe"};
  Answer answer;
  answer.outcome = run_job(make_command(job, this_site()), job, &answer.output);
  constexpr std::string_view kMark = "tutti-probe ";
  for (size_t at = answer.output.find(kMark); at != std::string::npos; at = answer.output.find(kMark, at + 1)) {
    const size_t begin = at + kMark.size();
    auto said = nlohmann::json::parse(answer.output.substr(begin, answer.output.find('\n', begin) - begin), nullptr, false);
    if (said.is_object()) answer.ranks.push_back(std::move(said));
  }
  return answer;
}

std::string quoted(const std::string& output) {
  std::string lines;
  constexpr int kMost = 12;
  int shown = 0;
  for (std::string_view left = output; !left.empty() && shown < kMost;) {
    const size_t end = std::min(left.find('\n'), left.size());
    const std::string_view line = left.substr(0, end);
    if (line.find_first_not_of("- ") != std::string_view::npos) lines += fmt::format("\n    | {}", line), ++shown;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return lines;
}

bool has_tutti_mpi() { return access((this_program() + "-mpi").c_str(), X_OK) == 0; }

/// The libmpi that tutti-mpi finds, as the loader says; empty: none.
std::string libmpi() {
  const std::string loaded = output_of(
      fmt::format("LD_TRACE_LOADED_OBJECTS=1 {} 2>/dev/null", as_shell({.words = {this_program() + "-mpi"}, .variables = {}})));
  const size_t name = loaded.find("libmpi");
  if (name == std::string::npos) return {};
  const size_t arrow = loaded.find("=> ", name);
  if (arrow == std::string::npos || loaded.substr(arrow, 12) == "=> not found") return {};
  return loaded.substr(arrow + 3, loaded.find(' ', arrow + 3) - arrow - 3);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// "4.1.4" of "mpirun (Open MPI) 4.1.4" or "Open MPI v4.1.4, package: ..."; empty: not Open MPI's.
std::string open_mpi_version(const std::string& text) {
  const size_t name = text.find("Open MPI");
  const size_t begin = name == std::string::npos ? name : text.find_first_of("0123456789", name);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
}

void explain_failure(Findings& findings, const Answer& answer, const std::string& mpirun, const std::string& library) {
  const auto has = [&](const char* words) { return answer.output.find(words) != std::string::npos; };
  if (has("symbol lookup error") || has("error while loading shared libraries") || has("undefined symbol") || library.empty())
    return findings.push_back(
        {"MPI library", Level::kProblem,
         fmt::format("tutti was not built with the libmpi that is found here ({}):{}", library.empty() ? "none" : library,
                     quoted(answer.output)),
         fmt::format(
             "LD_LIBRARY_PATH is '{}': take what does not belong to {} out of it, or load the module that tutti was built with",
             env_string("LD_LIBRARY_PATH").value_or(""), mpirun)});
  if (!mpirun.empty() && open_mpi_version(mpirun).empty())
    return findings.push_back(
        {"mpirun", Level::kProblem,
         fmt::format("no Open MPI's: {}; tutti is built with {}:{}", mpirun, library, quoted(answer.output)),
         "PATH and LD_LIBRARY_PATH have to name one MPI; `type -a mpirun` shows all"});
  if (answer.outcome.timed_out)
    return findings.push_back(
        {"MPI", Level::kProblem,
         fmt::format("two ranks on this host did not start and exchange messages in time:{}", quoted(answer.output)),
         "if this machine is slow: --timeout 120; else the network (tutti run -n 2 -L --mca -L btl -L self,vader goes without; "
         "ip addr, a firewall on lo)"});
  findings.push_back({"MPI", Level::kProblem,
                      fmt::format("two ranks can't be started (exit code {}):{}", answer.outcome.code, quoted(answer.output)),
                      "mend what mpirun says; tutti run --dry-run prints the command"});
}

}  // namespace

void check_mpi(Findings& findings, const RunOptions& job) {
  const Site site = this_site();
  if (job.launcher != Launcher::kSrun && !site.has_mpirun)
    return findings.push_back(
        {"mpirun", Level::kProblem, "none in PATH", "apt-get install openmpi-bin, or load your site's module"});
  const std::string mpirun = first_line(output_of("timeout -k 1 10 mpirun --version 2>/dev/null")), library = libmpi();
  if (!has_tutti_mpi())
    return findings.push_back(
        {"tutti-mpi", Level::kProblem,
         fmt::format("{}-mpi is not there: this program asks MPI by it, and `tutti bench` needs it", this_program()),
         "install tutti again, or copy tutti-mpi, too"});
  RunOptions here = job;
  here.hosts.clear();
  const Answer answer = start_probe(here, 2);
  if (!answer.is_well()) return explain_failure(findings, answer, mpirun, library);
  const auto& first = answer.ranks[0];
  const std::string words = first.value("library", ""), version = open_mpi_version(words);
  if (answer.ranks.size() == 2 &&
      std::all_of(answer.ranks.begin(), answer.ranks.end(), [](const auto& rank) { return rank.value("ranks", 0) == 1; }))
    return findings.push_back(
        {"mpirun", Level::kProblem,
         fmt::format("two ranks are started, and each believes that it is alone: {} does not belong to {} ({})", mpirun, library,
                     words),
         "PATH and LD_LIBRARY_PATH have to name one MPI; `type -a mpirun` shows all"});
  if (job.launcher != Launcher::kSrun && open_mpi_version(mpirun) != version)
    findings.push_back({"mpirun", Level::kProblem, fmt::format("{}, but libmpi ({}) is {}", mpirun, library, words),
                        "PATH and LD_LIBRARY_PATH have to name one MPI; `type -a mpirun` shows all"});
  else findings.push_back({"MPI", Level::kOk, fmt::format("two ranks start and exchange messages; {}, {}", words, library), ""});
  constexpr int kMultiple = 3;
  if (const int provided = first.value("thread_level", 0); provided < kMultiple)
    findings.push_back({"MPI threads", Level::kProblem,
                        fmt::format("MPI gives thread level {}, tutti needs MPI_THREAD_MULTIPLE ({})", provided, kMultiple),
                        "an MPI that is built with thread support (Debian's is)"});
  else findings.push_back({"MPI threads", Level::kOk, "MPI_THREAD_MULTIPLE", ""});
}

void check_slurm(Findings& findings) {
  const Site site = this_site();
  if (!site.in_allocation) return;
  if (!site.has_srun)
    findings.push_back(
        {"Slurm", Level::kWarning, "an allocation, but no srun in PATH", "load Slurm's module; tutti run takes mpirun"});
  else if (!has_pmix(site))
    findings.push_back({"Slurm", Level::kWarning, "srun has no PMIx, so it can't start Open MPI's ranks; tutti run takes mpirun",
                        "ask for Slurm's pmix plugin (srun --mpi=list)"});
  else findings.push_back({"Slurm", Level::kOk, "an allocation; srun --mpi=pmix starts ranks", ""});
}

void check_hosts(Findings& findings, const RunOptions& job) {
  std::vector<std::string> hosts;
  for (const std::string& host : job.hosts) hosts.push_back(host.substr(0, host.find(':')));  // one rank each
  const auto try_on = [&](std::vector<std::string> some) {
    RunOptions there = job;
    there.hosts = std::move(some);
    return start_probe(there, static_cast<int>(there.hosts.size()));
  };
  const auto says = [&](const Answer& answer) { return quoted(answer.output); };
  if (try_on(hosts).is_well())
    return findings.push_back(
        {"hosts", Level::kOk, fmt::format("ranks on all {} start and exchange messages", hosts.size()), ""});
  std::vector<std::string> reached;
  for (const std::string& host : hosts) {
    const Answer answer = try_on({host});
    if (answer.is_well()) reached.push_back(host);
    else
      findings.push_back({"hosts", Level::kProblem,
                          fmt::format("no rank starts on {}{}:{}", host,
                                      answer.outcome.timed_out ? fmt::format(" within {} s", job.timeout_s) : "", says(answer)),
                          fmt::format("ssh {} true has to work without a password; tutti and MPI have to be at the same place "
                                      "there; the host has to reach this one by TCP on all ports",
                                      host)});
  }
  bool any = reached.size() < hosts.size();
  constexpr size_t kAllPairs = 8;  // of more hosts only neighbours
  for (size_t a = 0; a < reached.size(); ++a)
    for (size_t b = a + 1; b < reached.size() && (reached.size() <= kAllPairs || b == a + 1); ++b) {
      const Answer answer = try_on({reached[a], reached[b]});
      if (answer.is_well()) continue;
      any = true;
      findings.push_back(
          {"hosts", Level::kProblem,
           fmt::format("{} and {} start ranks, but messages between them do not arrive{}:{}", reached[a], reached[b],
                       answer.outcome.timed_out ? fmt::format(" within {} s", job.timeout_s) : "", says(answer)),
           "a firewall, or a network that only one of them has: open all TCP ports between them; choose the network by "
           "OMPI_MCA_btl_tcp_if_include=10.0.0.0/16 (and oob_tcp_if_include)"});
    }
  if (!any)
    findings.push_back({"hosts", Level::kProblem,
                        fmt::format("each two of them work, all {} together do not within {} s", hosts.size(), job.timeout_s),
                        "a longer --timeout; fewer hosts, to find the one that matters"});
}

}  // namespace tutti::launcher
