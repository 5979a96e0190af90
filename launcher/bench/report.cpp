#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace tutti::bench {
namespace {

std::vector<Row> read(const std::string& path) try {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("can't be opened");
  std::vector<Row> rows;
  const auto report = nlohmann::json::parse(file);
  for (const auto& row : report.at("rows"))
    rows.push_back({.what = row.at("what"), .unit = row.at("unit"), .ours = row.at("ours")});
  return rows;
} catch (const std::exception& error) {
  throw std::runtime_error(fmt::format("--baseline {}: {}; expected what --format json wrote", path, error.what()));
}

}  // namespace

Report::Report(Options options, std::string title, int workers)
    : options_(std::move(options)), title_(std::move(title)), workers_(workers) {
  if (!options_.baseline.empty()) earlier_ = read(options_.baseline);
  if (options_.format == "table") fmt::print("{}; {} workers, medians of {} runs\n", title_, workers_, options_.repeats);
}

void Report::add(const Row& row) {
  rows_.push_back(row);
  if (options_.format != "table") return;
  fmt::print("  {:<52} {:>10.2f} {:<10}", row.what, row.ours, row.unit);
  if (row.raw > 0) fmt::print(" {:>10.2f} {:<30} ratio {:.3f}", row.raw, row.against, row.ours / row.raw);
  const auto before =
      std::find_if(earlier_.begin(), earlier_.end(), [&](const Row& r) { return r.what == row.what && r.unit == row.unit; });
  if (before != earlier_.end() && before->ours > 0)
    fmt::print("  baseline {:.2f} ({:+.1f} %)", before->ours, 100 * (row.ours / before->ours - 1));
  fmt::print("\n");
  std::fflush(stdout);
}

void Report::finish() const {
  if (options_.format != "json") return;
  nlohmann::ordered_json out = {{"schema", "tutti.bench/1"},
                                {"title", title_},
                                {"workers", workers_},
                                {"repeats", options_.repeats},
                                {"rows", nlohmann::ordered_json::array()}};
  for (const Row& row : rows_) {
    nlohmann::ordered_json entry = {{"what", row.what}, {"unit", row.unit}, {"ours", row.ours}};
    if (row.raw > 0) entry.update({{"raw", row.raw}, {"against", row.against}, {"ratio", row.ours / row.raw}});
    out["rows"].push_back(entry);
  }
  fmt::print("{}\n", out.dump(2));
}

}  // namespace tutti::bench
