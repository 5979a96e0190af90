// tutti doctor
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/env.h"
#include "doctor/checks.h"
#include "run/run_options.h"

namespace {

using namespace tutti::launcher;

struct DoctorOptions {
  RunOptions job{.timeout_s = 15};
  bool json = false;
};

constexpr const char* kWords[] = {"ok", "warning", "PROBLEM"};

void show(const Finding& finding) {
  fmt::print("{:<8} {:<16} {}\n", kWords[static_cast<size_t>(finding.level)], finding.check, finding.text);
  if (!finding.fix.empty()) fmt::print("{:<25} -> {}\n", "", finding.fix);
  std::fflush(stdout);
}

std::string as_json(const Findings& findings) {
  constexpr const char* kLevels[] = {"ok", "warning", "problem"};
  nlohmann::ordered_json document{
      {"schema", "tutti.doctor/1"}, {"host", tutti::detail::host_name()}, {"findings", nlohmann::ordered_json::array()}};
  for (const Finding& finding : findings)
    document["findings"].push_back({{"check", finding.check},
                                    {"level", kLevels[static_cast<size_t>(finding.level)]},
                                    {"text", finding.text},
                                    {"fix", finding.fix}});
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

int doctor(const DoctorOptions& options) {
  Findings findings([&](const Finding& finding) {
    if (!options.json) show(finding);
  });
  const auto look = [&](const char* name, const auto& check) {
    try {
      check();
    } catch (const std::exception& error) {
      findings.push_back({name, Level::kProblem, error.what(), "mend that, then ask again"});
    }
  };
  look("shared memory", [&] { check_shared_memory(findings); });
  look("CPUs", [&] { check_cpus(findings, options.job.ranks); });
  look("user", [&] { check_user(findings); });
  look("GPUs", [&] { check_gpus(findings); });
  look("Slurm", [&] { check_slurm(findings); });
  look("MPI", [&] { check_mpi(findings, options.job); });
  if (!options.job.hosts.empty()) look("hosts", [&] { check_hosts(findings, options.job); });
  if (options.json) std::cout << as_json(findings) << '\n';
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.level == Level::kProblem; })
             ? 1
             : 0;
}

}  // namespace

void tutti::launcher::add_doctor(CLI::App& app, int& code) {
  auto* command = app.add_subcommand(
      "doctor", "looks for what keeps jobs from running here, and says what to do. Exit code 1: there is a problem");
  const auto options = std::make_shared<DoctorOptions>();
  command->add_option("-n,--ranks", options->job.ranks, "ranks that are to run on this node")->check(CLI::Range(1, 1 << 20));
  add_job_options(*command, options->job);
  command->add_option("--timeout", options->job.timeout_s, "seconds for each job that is tried")
      ->check(check_seconds)
      ->capture_default_str();
  command->add_flag("--json", options->json, "\"tutti.doctor/1\" of docs/formats.md");
  command->callback([options, &code] { code = doctor(*options); });
}
