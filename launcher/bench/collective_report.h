#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti::bench {

/// Options as nccl-tests has them, and what they don't need.
struct CollectiveOptions {
  std::string least = "8", most = "64M";         ///< -b -e
  double factor = 2;                             ///< -f
  int iterations = 20, warm_ups = 5, check = 1;  ///< -n -w -c
  std::string dtype = "float32", redop = "sum";  ///< -d -o
  int root = 0;                                  ///< -r
  std::string format = "table", baseline;
  std::string memory = "tutti";  ///< or "foreign": as of a numpy array
  std::string ccl = "auto";
  std::string device = "cpu";  ///< or "cuda", "rocm": the ccl is "nccl", "rccl"
  int skew_us = 0;             ///< members come up to so much apart
};

/// Medians over the iterations of the slowest member's time, in microseconds; none: there is no such way, or no such type.
struct CollectiveRow {
  int64_t size_bytes = 0, count = 0;
  std::optional<double> ours, ours_in_place, raw, raw_in_place;  ///< raw: MPI's, on GPUs NCCL's
  std::optional<double> start, raw_start;                        ///< on devices: until the call returns, out of place
  int64_t wrong = 0, wrong_in_place = 0;
};

/// nccl-tests' columns, OSU's, or JSON.
class CollectiveReport {
 public:
  CollectiveReport(CollectiveOptions options, std::string operation, int workers);
  void add(const CollectiveRow& row);
  bool finish() const;  ///< whether all data was right

 private:
  std::string raw() const { return options_.device == "cpu" ? "MPI" : options_.device == "cuda" ? "NCCL" : "RCCL"; }
  double bus_factor() const;  ///< bus bandwidth for an algorithm bandwidth of 1, as nccl-tests defines it
  void print(const CollectiveRow& row) const;

  CollectiveOptions options_;
  std::string operation_;
  int workers_;
  std::vector<CollectiveRow> rows_;
  std::map<int64_t, double> earlier_;  // by size
};

int64_t parse_size(const std::string& text);  ///< "64M"; bytes, K, M, G of 1024.  @throws UsageError

}  // namespace tutti::bench
