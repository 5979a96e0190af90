#include "test/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tutti::launcher {
namespace {

constexpr int kSkip = 77, kSetUpError = 99, kNotExecutable = 126, kNotFound = 127, kSignal = 128, kLastSignal = 31;

/// Of a rank ("[0] needs two ranks"), not the launcher's words on exit codes.
std::string_view last_line(std::string_view text) {
  while (!text.empty()) {
    text = text.substr(0, text.find_last_not_of('\n') + 1);
    const size_t begin = text.rfind('\n') + 1;
    const std::string_view line = text.substr(begin);
    if (const size_t end = line.find("] "); line.starts_with('[') && end != std::string_view::npos) return line.substr(end + 2);
    text = text.substr(0, begin);
  }
  return {};
}

/// XML has no words for most control characters.
std::string escaped(std::string_view text) {
  std::string xml;
  for (const char c : text) switch (c) {
      case '&': xml += "&amp;"; break;
      case '<': xml += "&lt;"; break;
      case '>': xml += "&gt;"; break;
      case '"': xml += "&quot;"; break;
      case '\n': xml += "&#10;"; break;
      default: xml += static_cast<unsigned char>(c) >= 0x20 || c == '\t' ? c : '?';
    }
  return xml;
}

/// Bytes that are no UTF-8 become question marks.
std::string as_utf8(const std::string& text) {
  const nlohmann::json quoted = text;
  return nlohmann::json::parse(quoted.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).get<std::string>();
}

std::string tail(const std::string& output) {
  constexpr size_t kMost = 1 << 16;
  return output.size() <= kMost ? output : "...\n" + output.substr(output.size() - kMost);
}

std::string to_junit(const Case& one) {
  std::string xml = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"", escaped(as_utf8(one.suite)),
                                escaped(as_utf8(one.name)), one.seconds);
  const std::string message = as_utf8(one.message);
  if (one.verdict == Verdict::kPassed) return xml + "/>\n";
  if (one.verdict == Verdict::kSkipped) return xml + fmt::format("><skipped message=\"{}\"/></testcase>\n", escaped(message));
  return xml + fmt::format("><failure message=\"{}\">{}</failure></testcase>\n", escaped(message.substr(0, message.find('\n'))),
                           escaped(message));
}

size_t count_of(const std::vector<Case>& cases, Verdict verdict) {
  return static_cast<size_t>(std::count_if(cases.begin(), cases.end(), [&](const Case& one) { return one.verdict == verdict; }));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string without_colours(std::string_view line) {
  std::string plain;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line.substr(at).starts_with("\033[")) at = std::min(line.find('m', at), line.size());
    else plain += line[at];
  }
  return plain;
}

/// The rank whose end mpirun or srun tells in this line; -1: the line tells of none.
int rank_that_ended(const std::string& line) {
  for (const std::string_view words : {"that process rank ", "was invoked on rank ", ": task "})
    if (const size_t at = line.find(words); at != std::string::npos && is_digit(line[at + words.size()]))
      return std::atoi(line.c_str() + at + words.size());
  const size_t comma = line.rfind(',');  // Process name: [[59512,1],3]
  return line.find("Process name: [") != std::string::npos && comma != std::string::npos ? std::atoi(line.c_str() + comma + 1)
                                                                                         : -1;
}

/// The test in which the job has ended: GoogleTest has told of its begin, not of its end. That of the rank that failed counts;
/// where this rank tells of no tests (with tutti/testing.h rank 0 speaks for all), another's. Empty: no rank was in a test.
std::string unfinished_test(const std::string& output) {
  constexpr std::string_view kBegin = "[ RUN      ] ", kEnds[] = {"[       OK ] ", "[  FAILED  ] ", "[  SKIPPED ] "};
  std::map<int, std::string> tests;  // by rank; empty: it is between two
  int failed = -1;
  std::istringstream lines(output);
  for (std::string coloured; std::getline(lines, coloured);) {
    const std::string line = without_colours(coloured);
    if (line.size() < 2 || line[0] != '[' || !is_digit(line[1])) {  // the launcher's
      failed = failed < 0 ? rank_that_ended(line) : failed;
      continue;
    }
    const int rank = std::atoi(line.c_str() + 1);
    if (const size_t begin = line.find(kBegin); begin != std::string::npos) tests[rank] = line.substr(begin + kBegin.size());
    const auto test = tests.find(rank);
    for (const std::string_view end : kEnds)
      if (test != tests.end() && line.find(std::string(end) + test->second) != std::string::npos) test->second.clear();
  }
  if (const auto its = tests.find(failed); its != tests.end()) return its->second;
  for (const auto& [rank, test] : tests)
    if (!test.empty()) return test;
  return {};
}

/// Where the tests tell nothing of how the job ended, it is a case by itself, named after the test that it ended in.
std::vector<Case> all_cases(const Run& run) {
  std::vector<Case> cases = run.cases;
  const Verdict verdict = run.verdict();
  if (verdict == Verdict::kSkipped && count_of(cases, verdict) == 0)
    cases.clear();  // GoogleTest tells of tests that an environment has kept from running
  if (!cases.empty() && (verdict != Verdict::kFailed || count_of(cases, verdict) > 0)) return cases;
  Case job{.suite = "tutti test", .name = run.name, .seconds = run.seconds, .verdict = verdict, .message = run.reason()};
  if (verdict == Verdict::kFailed) {
    const std::string test = unfinished_test(run.output);
    const size_t dot = test.find('.');
    if (dot != std::string::npos) job.suite = test.substr(0, dot), job.name = test.substr(dot + 1);
    job.message += "\n" + tail(run.output);
  }
  cases.push_back(std::move(job));
  return cases;
}

}  // namespace

Verdict Run::verdict() const { return code == 0 ? Verdict::kPassed : code == kSkip ? Verdict::kSkipped : Verdict::kFailed; }

std::string Run::reason() const {
  if (timed_out) {
    constexpr std::string_view kHangs = "tutti: not in MPI, where others wait: ";  // run/stacks.cpp
    const size_t found = output.find(kHangs), begin = found + kHangs.size();
    return found == std::string::npos
               ? "time-out"
               : fmt::format("time-out: {} not in MPI, where others wait", output.substr(begin, output.find(';', begin) - begin));
  }
  switch (code) {
    case 0: return "";
    case kSkip:
      for (const Case& one : cases)
        if (one.verdict == Verdict::kSkipped && !one.message.empty()) return one.message;
      return std::string(last_line(output));
    case kSetUpError: return "exit code 99: its set-up is wrong";
    case kNotExecutable: return "exit code 126: it can't be executed";
    case kNotFound: return "exit code 127: there is no such program";
    default: break;
  }
  if (code > kSignal && code <= kSignal + kLastSignal) return fmt::format("exit code {}: {}", code, strsignal(code - kSignal));
  return fmt::format("exit code {}", code);
}

std::vector<Case> read_cases(const std::string& text) {
  std::vector<Case> cases;
  try {
    const auto document = nlohmann::json::parse(text);
    for (const auto& suite : document.at("testsuites"))
      for (const auto& test : suite.at("testsuite")) {
        if (test.value("status", "RUN") != "RUN") continue;
        Case one{.suite = suite.at("name"),
                 .name = test.at("name"),
                 .seconds = std::atof(test.value("time", "0s").c_str()),
                 .verdict = Verdict::kPassed,
                 .message = {}};
        if (test.value("result", "") == "SKIPPED") {
          one.verdict = Verdict::kSkipped;
          one.message = test.value("skipped_because", "");
        }
        for (const auto& failure : test.value("failures", nlohmann::json::array())) {
          one.verdict = Verdict::kFailed;
          one.message += failure.at("failure").get<std::string>() + "\n";
        }
        cases.push_back(std::move(one));
      }
  } catch (const nlohmann::json::exception&) {  // cut off, or several ranks' at once: GoogleTest without tutti/testing.h
    return {};
  }
  return cases;
}

std::string to_junit(const std::vector<Run>& runs) {
  std::string xml;
  size_t tests = 0, failures = 0, skipped = 0;
  double seconds = 0;
  for (const Run& run : runs) {
    const auto cases = all_cases(run);
    const size_t failed = count_of(cases, Verdict::kFailed), left_out = count_of(cases, Verdict::kSkipped);
    xml += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3f}\">\n",
                       escaped(as_utf8(run.name)), cases.size(), failed, left_out, run.seconds);
    for (const Case& one : cases) xml += to_junit(one);
    xml += "  </testsuite>\n";
    tests += cases.size(), failures += failed, skipped += left_out, seconds += run.seconds;
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" "
      "time=\"{:.3f}\">\n{}</testsuites>\n",
      tests, failures, skipped, seconds, xml);
}

std::string to_tap(const Run& run, size_t number) {
  const Verdict verdict = run.verdict();
  std::string name = run.name;
  std::replace(name.begin(), name.end(), '#', ' ');  // begins a directive
  std::string text = fmt::format("{} {} - {}{}\n", verdict == Verdict::kFailed ? "not ok" : "ok", number, name,
                                 verdict == Verdict::kSkipped ? " # SKIP " + run.reason() : "");
  if (verdict != Verdict::kFailed) return text;
  text += "# " + run.reason() + "\n";
  for (std::string_view left = run.output; !left.empty();) {
    const size_t end = std::min(left.find('\n'), left.size());
    text += fmt::format("# {}\n", left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return text;
}

std::string count(const std::vector<Run>& runs) {
  size_t counts[3] = {};
  for (const Run& run : runs) ++counts[static_cast<size_t>(run.verdict())];
  return fmt::format("{} passed, {} failed, {} skipped", counts[0], counts[1], counts[2]);
}

}  // namespace tutti::launcher
