#pragma once

#include <string>
#include <vector>

namespace tutti::bench {

struct Options {
  std::string format = "table";  ///< table or json
  std::string baseline;          ///< a JSON report of an earlier run to compare with
  int repeats = 3;
};

/// One figure of ours, and what the raw library gave in the same run.
struct Row {
  std::string what, unit;
  double ours = 0;
  double raw = 0;  ///< 0: there is nothing to hold it against
  std::string against;
};

/// Rows as they come (table), or all at the end (json); the baseline's beside them.
class Report {
 public:
  Report(Options options, std::string title, int workers);
  void add(const Row& row);
  void finish() const;
  const Options& options() const { return options_; }

 private:
  Options options_;
  std::string title_;
  int workers_;
  std::vector<Row> rows_, earlier_;
};

}  // namespace tutti::bench
