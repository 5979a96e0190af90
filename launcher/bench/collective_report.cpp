#include "bench/collective_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tutti/error.h"

namespace tutti::bench {
namespace {

std::map<int64_t, double> read(const std::string& path, const std::string& operation, int workers,
                               const CollectiveOptions& o) try {
  std::ifstream file(path);
  if (!file) throw UsageError("can't be opened");
  std::map<int64_t, double> times;
  const auto report = nlohmann::json::parse(file);
  const auto same = [&](const char* name, const auto& here) {
    if (report.at(name) != here)
      throw UsageError(fmt::format("its {} is {}, here it is {}", name, report.at(name).dump(), nlohmann::json(here).dump()));
  };
  same("operation", operation), same("workers", workers), same("dtype", o.dtype), same("memory", o.memory), same("ccl", o.ccl),
      same("skew_us", o.skew_us);
  if (report.value("device", "cpu") != o.device) throw UsageError("it is of another device");
  for (const auto& row : report.at("rows")) times[row.at("size").get<int64_t>()] = row.at("out_of_place").at("us").get<double>();
  return times;
} catch (const std::exception& error) {
  throw UsageError(fmt::format("--baseline {}: {}; expected what --format json wrote with the same options", path, error.what()));
}

double gigabytes_a_second(int64_t bytes, double us) { return static_cast<double>(bytes) / us * 1e-3; }

}  // namespace

int64_t parse_size(const std::string& text) {
  size_t end = 0;
  double value = 0;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
  }
  const std::string unit = text.substr(end);
  const double scale = unit == "G"                   ? 1 << 30
                       : unit == "M"                 ? 1 << 20
                       : unit == "K"                 ? 1 << 10
                       : unit.empty() || unit == "B" ? 1
                                                     : 0;
  if (end == 0 || scale == 0 || !(value >= 0 && value * scale <= 1e15))
    throw UsageError(fmt::format("'{}' is no size; expected bytes, or a number with K, M or G", text));
  return static_cast<int64_t>(value * scale);
}

CollectiveReport::CollectiveReport(CollectiveOptions options, std::string operation, int workers)
    : options_(std::move(options)), operation_(std::move(operation)), workers_(workers) {
  if (!options_.baseline.empty()) earlier_ = read(options_.baseline, operation_, workers_, options_);
  if (options_.format == "osu")
    fmt::print("# {} {} {}, {} workers\n# {:<12}{:>16}{:>16}\n", operation_, options_.dtype, options_.redop, workers_, "Size",
               "Avg Latency(us)", raw() + " (us)");
  if (options_.format != "table") return;
  fmt::print(
      "# {} workers, ccl {}, {} memory{}; each time: median of {} iterations, of the slowest member. x: how many times as fast "
      "as {}\n",
      workers_, options_.ccl, options_.device == "cpu" ? options_.memory : options_.device,
      options_.skew_us > 0 ? fmt::format(", members up to {} us apart", options_.skew_us) : "", options_.iterations, raw());
  const bool on_host = options_.device == "cpu";
  fmt::print("# {:>10} {:>11} {:>8} {:>6} {:>4}  {:>9} {:>7} {:>7} {:>6} {:>9} {:>5}   {:>9} {:>7} {:>7} {:>6} {:>9} {:>5}{}\n",
             "size", "count", "type", "redop", "root", "out:time", "algbw", "busbw", "#wrong", raw(), "x", "in:time", "algbw",
             "busbw", "#wrong", raw(), "x", on_host ? "" : fmt::format("    start {:>8}", raw()));
  fmt::print("# {:>10} {:>11} {:>8} {:>6} {:>4}  {:>9} {:>7} {:>7} {:>6} {:>9} {:>5}   {:>9} {:>7} {:>7} {:>6} {:>9} {:>5}{}\n",
             "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
             "", on_host ? "" : "     (us)     (us)");
}

double CollectiveReport::bus_factor() const {
  const double n = workers_;
  if (operation_ == "allreduce") return 2 * (n - 1) / n;
  if (operation_ == "broadcast" || operation_ == "sendrecv") return 1;
  return (n - 1) / n;
}

void CollectiveReport::add(const CollectiveRow& row) {
  rows_.push_back(row);
  print(row);
}

void CollectiveReport::print(const CollectiveRow& row) const {
  if (options_.format == "osu")
    fmt::print("{:<14}{:>16.2f}{:>16}\n", row.size_bytes, row.ours.value_or(0), row.raw ? fmt::format("{:.2f}", *row.raw) : "-");
  if (options_.format != "table") return;
  const auto half = [&](std::optional<double> ours, std::optional<double> raw, int64_t wrong) {
    if (!ours) return fmt::format("  {:>9} {:>7} {:>7} {:>6} {:>9} {:>5}", "-", "-", "-", "-", "-", "-");
    const double bandwidth = gigabytes_a_second(row.size_bytes, *ours);
    return fmt::format("  {:>9.2f} {:>7.2f} {:>7.2f} {:>6} {:>9} {:>5}", *ours, bandwidth, bandwidth * bus_factor(),
                       options_.check ? std::to_string(wrong) : "N/A", raw ? fmt::format("{:.2f}", *raw) : "-",
                       raw ? fmt::format("{:.2f}", *raw / *ours) : "-");
  };
  const auto before = earlier_.find(row.size_bytes);
  const std::string starts =
      row.start && row.raw_start ? fmt::format(" {:>8.2f} {:>8.2f}", *row.start, *row.raw_start) : std::string();
  fmt::print("{:>12} {:>11} {:>8} {:>6} {:>4}{} {}{}{}\n", row.size_bytes, row.count, options_.dtype, options_.redop,
             options_.root, half(row.ours, row.raw, row.wrong), half(row.ours_in_place, row.raw_in_place, row.wrong_in_place),
             starts,
             before != earlier_.end() && row.ours
                 ? fmt::format("  baseline {:.2f} ({:+.1f} %)", before->second, 100 * (*row.ours / before->second - 1))
                 : "");
  std::fflush(stdout);
}

bool CollectiveReport::finish() const {
  int64_t wrong = 0;
  double bandwidth = 0;
  int ways = 0;
  for (const CollectiveRow& row : rows_) {
    wrong += row.wrong + row.wrong_in_place;
    for (const auto& time : {row.ours, row.ours_in_place})
      if (time && row.size_bytes > 0) bandwidth += gigabytes_a_second(row.size_bytes, *time) * bus_factor(), ++ways;
  }
  if (options_.format == "table")
    fmt::print("# wrong values: {}{}\n# average bus bandwidth: {:.4f} GB/s\n", wrong, options_.check ? "" : " (not checked)",
               ways > 0 ? bandwidth / ways : 0);
  if (options_.format == "json") {
    nlohmann::ordered_json out = {{"schema", "tutti.bench-collective/1"},
                                  {"operation", operation_},
                                  {"workers", workers_},
                                  {"dtype", options_.dtype},
                                  {"redop", options_.redop},
                                  {"root", options_.root},
                                  {"memory", options_.memory},
                                  {"ccl", options_.ccl},
                                  {"device", options_.device},
                                  {"skew_us", options_.skew_us},
                                  {"iterations", options_.iterations},
                                  {"rows", nlohmann::ordered_json::array()}};
    for (const CollectiveRow& row : rows_) {
      nlohmann::ordered_json entry = {{"size", row.size_bytes}, {"count", row.count}};
      const auto half = [&](const char* name, std::optional<double> ours, std::optional<double> raw, int64_t bad) {
        if (!ours) return;
        const double algbw = gigabytes_a_second(row.size_bytes, *ours);
        entry[name] = {{"us", *ours}, {"algbw", algbw}, {"busbw", algbw * bus_factor()}};
        if (options_.check) entry[name]["wrong"] = bad;
        if (raw) entry[name].update({{options_.device == "cpu" ? "mpi_us" : "nccl_us", *raw}, {"speedup", *raw / *ours}});
      };
      half("out_of_place", row.ours, row.raw, row.wrong);
      if (row.start) entry["out_of_place"]["start_us"] = *row.start;
      if (row.raw_start) entry["out_of_place"]["nccl_start_us"] = *row.raw_start;
      half("in_place", row.ours_in_place, row.raw_in_place, row.wrong_in_place);
      out["rows"].push_back(entry);
    }
    fmt::print("{}\n", out.dump(2));
  }
  if (wrong > 0) fmt::print(stderr, "tutti bench {}: {} wrong values\n", operation_, wrong);
  return wrong == 0;
}

}  // namespace tutti::bench
