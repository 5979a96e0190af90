// tutti test
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "commands.h"
#include "run/job.h"
#include "run/run_options.h"
#include "test/report.h"
#include "tutti/error.h"

namespace {

using namespace tutti::launcher;

struct TestOptions {
  RunOptions job{.timeout_s = 300};
  std::vector<int> ranks{1, 2, 4};
  std::string junit;
  bool tap = false, verbose = false;
};

/// Where rank 0's GoogleTest is to leave its results.
class ResultFile {
 public:
  explicit ResultFile(const std::filesystem::path& folder) : path_(folder / fmt::format("tutti-test-{}.json", getpid())) {}
  ~ResultFile() { remove(); }
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  std::string option() const { return "json:" + path_.string(); }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

/// @return  false: the user wants no more
bool run_once(const TestOptions& options, int ranks, const ResultFile& results, std::vector<Run>& runs) {
  RunOptions job = options.job;
  job.ranks = ranks;
  results.remove();
  setenv("GTEST_OUTPUT", results.option().c_str(), 1);
  job.exported.emplace_back("GTEST_OUTPUT");
  job.shows_captured = options.verbose;
  job.plain = !options.verbose || isatty(STDOUT_FILENO) == 0;
  const Command command = make_command(job, this_site());
  Run run{.name = fmt::format("{}, {} {}", std::filesystem::path(job.program[0]).filename().string(), ranks,
                              ranks == 1 ? "rank" : "ranks"),
          .code = 0,
          .seconds = 0,
          .output = {},
          .cases = {}};
  const auto begun = std::chrono::steady_clock::now();
  const Outcome outcome = run_job(command, job, &run.output);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  run.code = outcome.code;
  run.timed_out = outcome.timed_out;
  run.cases = read_cases(results.text());
  runs.push_back(std::move(run));
  if (outcome.asked_by != 0 && outcome.code == 0) runs.back().code = 128 + outcome.asked_by;  // the program has taken it well
  return outcome.asked_by == 0;
}

void show(const Run& run, bool was_shown) {
  constexpr const char* kWords[] = {"passed", "FAILED", "skipped"};
  if (run.verdict() == Verdict::kFailed && !was_shown) fmt::print("{}", run.output);
  const std::string reason = run.reason();
  fmt::print("{}: {}{}{} ({:.1f} s)\n", run.name, kWords[static_cast<size_t>(run.verdict())], reason.empty() ? "" : ": ", reason,
             run.seconds);
  std::fflush(stdout);
}

int test(const TestOptions& options) {
  if (const int code = why_not_startable(options.job)) {
    fmt::print(stderr, "tutti: test: {}: {}\n", options.job.program[0],
               code == 126 ? "it can't be executed" : "there is no such program");
    return 99;
  }
  std::ofstream junit;
  if (!options.junit.empty()) {
    junit.open(options.junit);
    if (!junit) {
      fmt::print(stderr, "tutti: test: {}: {}\n", options.junit, std::strerror(errno));
      return 99;
    }
  }
  // beside the report, which other hosts reach more likely than this one's /tmp
  const ResultFile results(options.junit.empty() ? std::filesystem::temp_directory_path()
                                                 : std::filesystem::absolute(options.junit).parent_path());
  std::vector<Run> runs;
  if (options.tap) fmt::print("TAP version 13\n1..{}\n", options.ranks.size());
  bool goes_on = true;
  for (const int ranks : options.ranks) {
    goes_on = run_once(options, ranks, results, runs);
    if (!goes_on && !options.verbose) fmt::print("{}", runs.back().output);  // how far it was
    if (!goes_on) break;
    if (options.tap) fmt::print("{}", to_tap(runs.back(), runs.size()));
    else show(runs.back(), options.verbose);
    std::fflush(stdout);
  }
  if (junit.is_open()) {
    if (!(junit << to_junit(runs)).flush())
      throw tutti::SystemError(fmt::format("test: {}: {}", options.junit, std::strerror(errno)));
  }
  if (!goes_on) return runs.back().code;
  if (!options.tap && options.ranks.size() > 1) fmt::print("{}\n", count(runs));
  // one code for all: the first failure's if it is a set-up error, 77 if nothing ran
  constexpr int kSkip = 77, kSetUpError = 99;
  bool any_failed = false, all_skipped = true, set_up = true;
  for (const Run& run : runs) {
    any_failed |= run.verdict() == Verdict::kFailed;
    all_skipped &= run.verdict() == Verdict::kSkipped;
    set_up &= run.verdict() != Verdict::kFailed || run.code == kSetUpError;
  }
  return any_failed ? (set_up ? kSetUpError : 1) : all_skipped ? kSkip : 0;
}

}  // namespace

void tutti::launcher::add_test(CLI::App& app, int& code) {
  auto* command = app.add_subcommand(
      "test", "runs a test program of MPI at several rank counts. Exit code 77 of it: skipped; 99: set up wrongly");
  const auto options = std::make_shared<TestOptions>();
  command->add_option("-n,--ranks", options->ranks, "rank counts; default: 1,2,4")
      ->delimiter(',')
      ->type_size(1)
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 1 << 20));
  add_job_options(*command, options->job);
  command
      ->add_option("--timeout", options->job.timeout_s,
                   "seconds for each count; then it is told where each rank is, and the job is ended")
      ->check(check_seconds)
      ->capture_default_str();
  command->add_option("--junit", options->junit, "a file for the results as JUnit's XML; with GoogleTest, of each test");
  auto* tap = command->add_flag("--tap", options->tap, "results as TAP 13");
  command->add_flag("-v,--verbose", options->verbose, "all output, as it comes; else that of counts that fail")->excludes(tap);
  command->add_option("PROGRAM", options->job.program, "after --: the program and its arguments")->required();
  command->callback([options, &code] {
    options->job.program = program_of(options->job.program);
    code = ::test(*options);
  });
}
