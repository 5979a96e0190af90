// What `tutti test` has seen, for people (TAP) and for machines (JUnit).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::launcher {

enum class Verdict { kPassed, kFailed, kSkipped };

/// A test inside a program; GoogleTest tells of them.
struct Case {
  std::string suite, name;
  double seconds = 0;
  Verdict verdict = Verdict::kPassed;
  std::string message;
};

/// A program at one rank count.
struct Run {
  std::string name;  ///< "ring_test, 4 ranks"
  int code = 0;      ///< 77: skipped
  bool timed_out = false;
  double seconds = 0;
  std::string output;
  std::vector<Case> cases;

  Verdict verdict() const;
  std::string reason() const;  ///< why it failed or was skipped, in a few words
};

/// What GoogleTest's --gtest_output=json has written; nothing if it is none.
std::vector<Case> read_cases(const std::string& json);

std::string to_junit(const std::vector<Run>& runs);
std::string to_tap(const Run& run, size_t number);
std::string count(const std::vector<Run>& runs);  ///< "3 passed, 0 failed, 1 skipped"

}  // namespace tutti::launcher
