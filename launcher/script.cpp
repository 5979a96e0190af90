// tutti script
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <regex>

#include "commands.h"
#include "run/command.h"
#include "tutti/error.h"

namespace {

using namespace tutti::launcher;

struct ScriptOptions {
  int nodes = 1, ranks = 1, gpus_per_node = 0, signal_before_s = 0;
  std::string time, name = "tutti", partition, output;
  std::vector<std::string> modules, sbatch, program;
  bool requeue = false;
};

/// What a shell on another node finds as this program.
std::string tutti_by_name() {
  std::string found = output_of("command -v tutti"), self = this_program();
  while (found.ends_with('\n')) found.pop_back();
  std::error_code ignored;
  return std::filesystem::equivalent(found, self, ignored) ? "tutti" : self;
}

/// Slurm's: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds.
std::string check_time(const std::string& text) {
  static const std::regex known(R"(\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|UNLIMITED|INFINITE)");
  return std::regex_match(text, known) ? ""
                                       : fmt::format("'{}': expected a time as Slurm has it: 30 (minutes), 4:00:00, 2-12", text);
}
/// A line of #SBATCH is taken apart at blanks.
std::string check_word(const std::string& text) {
  return !text.empty() && text.find_first_of(" \t\r\n\"'\\#") == std::string::npos
             ? ""
             : fmt::format("'{}': expected a word without blanks and quotes", text);
}
/// The line ends where its option ends: what follows would be commands.
std::string check_line(const std::string& text) {
  return text.find_first_of("\r\n") == std::string::npos ? "" : fmt::format("'{}': expected one line", text);
}

std::string script(const ScriptOptions& options) {
  if (options.nodes > options.ranks)
    throw tutti::UsageError(
        fmt::format("script: {} nodes for {} ranks: Slurm wants a task a node at least", options.nodes, options.ranks));
  std::string text = "#!/bin/bash\n";
  const auto line = [&](const std::string& option) { text += "#SBATCH " + option + "\n"; };
  line("--job-name=" + options.name);
  line(fmt::format("--nodes={}", options.nodes));
  line(fmt::format("--ntasks={}", options.ranks));
  if (options.ranks % options.nodes == 0) line(fmt::format("--ntasks-per-node={}", options.ranks / options.nodes));
  if (options.gpus_per_node > 0)
    line(fmt::format("--gpus-per-node={}", options.gpus_per_node));  // a node's ranks see all: tutti chooses
  if (!options.time.empty()) line("--time=" + options.time);
  if (!options.partition.empty()) line("--partition=" + options.partition);
  if (!options.output.empty()) line("--output=" + options.output);
  if (options.signal_before_s > 0) line(fmt::format("--signal=B:USR1@{}", options.signal_before_s));
  if (options.requeue) line("--requeue"), line("--open-mode=append");
  for (const std::string& word : options.sbatch) line(word);
  for (const std::string& module : options.modules)
    text += as_shell({.words = {"module", "load", module}, .variables = {}}) + "\n";
  std::vector<std::string> words{tutti_by_name(), "run", "-n", std::to_string(options.ranks), "--"};
  words.insert(words.end(), options.program.begin(), options.program.end());
  const std::string command = as_shell({.words = words, .variables = {}});
  if (options.signal_before_s == 0 && !options.requeue) return text + command + "\n";
  if (options.signal_before_s == 0) text += command;
  else  // Slurm would signal srun's ranks by itself, but none that mpirun has started
    text += "trap 'again=1; kill -USR1 $!' USR1\n" + command +
            " &\n"
            "again=1\n"
            "while [ $again = 1 ]; do again=0; wait $!; done";
  text += "\ncode=$?\n";
  if (options.requeue)
    text +=
        "# 75: it was asked to make room, and has saved. Or a node has failed (this one answers, not all do): the job ends long "
        "before Slurm misses the node\n"
        "answer() { timeout 30 srun --overlap --ntasks-per-node=1 -N \"$1\" -n \"$1\" \"${@:2}\" true; }\n"
        "if [ $code = 75 ] || { [ $code != 0 ] && answer 1 -w \"$SLURMD_NODENAME\" && ! answer \"$SLURM_JOB_NUM_NODES\"; }; then "
        "scontrol requeue \"$SLURM_JOB_ID\"; fi\n";
  return text + "exit $code\n";
}

}  // namespace

void tutti::launcher::add_script(CLI::App& app) {
  auto* command = app.add_subcommand(
      "script", "writes a batch script for Slurm to standard output: tutti script -N 2 -n 8 -- ./program > job; sbatch job");
  const auto options = std::make_shared<ScriptOptions>();
  command->add_option("-N,--nodes", options->nodes, "nodes")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  command->add_option("-n,--ranks", options->ranks, "ranks, of all nodes together")->required()->check(CLI::Range(1, 1 << 24));
  command->add_option("--gpus-per-node", options->gpus_per_node, "GPUs of each node")->check(CLI::Range(0, 1024));
  command->add_option("--time", options->time, "time limit as Slurm has it: 30, 4:00:00, 2-12")->check(check_time);
  command
      ->add_option("--signal-before", options->signal_before_s,
                   "seconds before the limit when ranks get SIGUSR1: Session::on_preemption saves then")
      ->check(CLI::Range(1, 65535));
  command->add_flag("--requeue", options->requeue, "start again after preemption (exit code 75) and when a node has failed");
  command->add_option("--module", options->modules, "`module load` this first; may be repeated")
      ->type_size(1)
      ->allow_extra_args(false)
      ->check(check_word);
  command->add_option("--sbatch", options->sbatch, "another option of sbatch's: --sbatch=--account=me; may be repeated")
      ->type_size(1)
      ->allow_extra_args(false)
      ->check(check_line);
  command->add_option("--name", options->name, "of the job")->check(check_word)->capture_default_str();
  command->add_option("--partition", options->partition, "Slurm's")->check(check_word);
  command->add_option("--output", options->output, "file for what it writes; %j is the job's number")->check(check_word);
  command->add_option("PROGRAM", options->program, "after --: the program and its arguments")->required();
  command->callback([options] {
    options->program = program_of(options->program);
    std::cout << script(*options);
  });
}
