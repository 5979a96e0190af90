#include "map_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

namespace tutti::launcher {
namespace {

using namespace topology;

constexpr int kCore = 30, kCoreHeight = 24, kColumns = 8, kGap = 10, kTitle = 24, kDevice = 40;
constexpr int kNumaWidth = kColumns * kCore + 2 * kGap;
constexpr int kDeviceWidth = (kNumaWidth - 3 * kGap) / 2;  // two in a row
constexpr int kNumasInRow = 4, kLegendWidth = 300, kLetter = 7, kLegendLine = 22;

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  return safe;
}

/// To a box's width; the tip has it all. Of a part (MIG) its own name counts.
std::string shortened(std::string name) {
  constexpr size_t kMost = 14;
  if (const size_t part = name.find(" MIG-"); part != std::string::npos) name.erase(0, part + 1);
  return name.size() <= kMost ? name : name.substr(0, kMost - 1) + "…";
}

/// Neighbours differ: hues a golden angle apart.
std::string colour(size_t rank) {
  const double hue = std::fmod(static_cast<double>(rank) * 137.508 + 205, 360), lightness = 0.74 - 0.1 * static_cast<double>(rank / 12 % 2), strength = 0.62;
  const auto channel = [&](double n) {
    const double k = std::fmod(n + hue / 30, 12);
    return static_cast<int>(255 * (lightness - strength * std::min(lightness, 1 - lightness) * std::max(-1.0, std::min({k - 3, 9 - k, 1.0}))));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", channel(0), channel(8), channel(4));
}

class Picture {
 public:
  Picture(const Node& node, const std::vector<Placement>& placements) : node_(node), placements_(placements) {}

  std::string draw() {
    int y = 2 * kGap + kTitle;
    std::map<int, std::vector<int>> packages;  // their NUMA nodes
    for (const Core& core : node_.cores)
      if (auto& numas = packages[core.package]; !std::ranges::count(numas, core.numa)) numas.push_back(core.numa);
    int most_columns = 1;
    for (const auto& [package, numas] : packages) most_columns = std::max(most_columns, std::min(kNumasInRow, static_cast<int>(numas.size())));
    width_ = most_columns * (kNumaWidth + kGap) + kGap;
    for (const auto& [package, numas] : packages) y = draw_package(package, numas, y) + kGap;
    y = std::max(draw_devices(devices_at([](const Device& d, const auto& homes) { (void)d; return homes.size() != 1; }), 2 * kGap, y, std::max(1, (width_ - 2 * kGap) / (kDeviceWidth + kGap))), y) + kGap;
    const int height = std::max(y, draw_legend(width_ + 3 * kGap, 2 * kGap + kTitle)) + kGap, width = width_ + 4 * kGap + legend_width_;
    const bool are_alike = !node_.gpus.empty() && std::ranges::all_of(node_.gpus, [&](const Device& gpu) { return gpu.model == node_.gpus[0].model; });
    const std::string model = are_alike && !node_.gpus[0].model.empty() ? " (" + node_.gpus[0].model + ")" : "";
    text(2 * kGap, kGap + 16, fmt::format("{}: {} rank{}, {} GPU{}{}, {} cores", node_.host.empty() ? "node" : node_.host, placements_.size(), placements_.size() == 1 ? "" : "s",
                                          node_.gpus.size(), node_.gpus.size() == 1 ? "" : "s", model, node_.cores.size()), 16, true);
    return fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\">\n"
                       "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n", width, height, body_);
  }

 private:
  void box(int x, int y, int width, int height, const std::string& fill, const std::string& stroke = "#888888", const std::string& tip = "") {
    fmt::format_to(std::back_inserter(body_), "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" stroke=\"{}\">{}</rect>\n", x, y, width, height, fill, stroke,
                   tip.empty() ? "" : "<title>" + escaped(tip) + "</title>");
  }
  void text(int x, int y, const std::string& what, int size = 12, bool bold = false, const char* anchor = "start") {
    fmt::format_to(std::back_inserter(body_), "<text x=\"{}\" y=\"{}\" font-size=\"{}\"{} text-anchor=\"{}\">{}</text>\n", x, y, size, bold ? " font-weight=\"bold\"" : "", anchor, escaped(what));
  }

  std::vector<size_t> ranks_on(const Core& core) const {
    std::vector<size_t> ranks;
    for (size_t r = 0; r < placements_.size(); ++r)
      if (intersect(placements_[r].cpus, core.cpus)) ranks.push_back(r);
    return ranks;
  }
  template <class List>
  std::vector<size_t> ranks_of(const Device& device, const List& list, int Placement::*chosen) const {
    std::vector<size_t> ranks;
    for (size_t r = 0; r < placements_.size(); ++r)
      if (const int at = placements_[r].*chosen; at >= 0 && &list[static_cast<size_t>(at)] == &device) ranks.push_back(r);
    return ranks;
  }
  static std::string names(const std::vector<size_t>& ranks) {
    std::vector<int> numbers(ranks.begin(), ranks.end());
    return ranks.empty() ? "" : (ranks.size() == 1 ? "rank " : "ranks ") + to_string(IndexSet(numbers));
  }
  /// Stripes, one a rank.
  void coloured(int x, int y, int width, int height, const std::vector<size_t>& ranks, const std::string& tip) {
    box(x, y, width, height, "#f2f2f2", "#888888", tip);
    const auto n = static_cast<int>(std::min<size_t>(ranks.size(), 8));
    for (int i = 0; i < n; ++i) box(x + i * width / n, y, (i + 1) * width / n - i * width / n, height, colour(ranks[static_cast<size_t>(i)]), "#888888", tip);
  }

  std::vector<int> homes_of(const Device& device) const {
    std::vector<int> homes;
    for (const Core& core : node_.cores)
      if (intersect(core.cpus, device.near) && !std::ranges::count(homes, core.numa)) homes.push_back(core.numa);
    return homes;
  }
  template <class Choose>
  std::vector<const Device*> devices_at(const Choose& choose) const {
    std::vector<const Device*> chosen;
    for (const auto* list : {&node_.gpus, &node_.nics})
      for (const Device& device : *list)
        if (choose(device, homes_of(device))) chosen.push_back(&device);
    return chosen;
  }
  int draw_devices(const std::vector<const Device*>& devices, int x, int y, int in_row) {
    constexpr int width = kDeviceWidth;
    for (size_t i = 0; i < devices.size(); ++i) {
      const Device& device = *devices[i];
      const bool is_nic = &device >= node_.nics.data() && &device < node_.nics.data() + node_.nics.size();
      const auto ranks = is_nic ? ranks_of(device, node_.nics, &Placement::nic) : ranks_of(device, node_.gpus, &Placement::gpu);
      const int at = x + static_cast<int>(i % static_cast<size_t>(in_row)) * (width + kGap), top = y + static_cast<int>(i / static_cast<size_t>(in_row)) * (kDevice + 6);
      coloured(at, top, width, kDevice, is_nic ? std::vector<size_t>() : ranks, fmt::format("{} {} {}", device.name, device.pci, device.model));
      text(at + width / 2, top + 16, shortened(device.name), 12, true, "middle");
      text(at + width / 2, top + 32, ranks.empty() ? "no rank" : names(ranks), 11, false, "middle");
    }
    const auto rows = (devices.size() + static_cast<size_t>(in_row) - 1) / static_cast<size_t>(in_row);
    return y + static_cast<int>(rows) * (kDevice + 6);
  }

  int draw_numa(int numa, int x, int y, int height) {
    const NumaNode& memory = node_.numa[static_cast<size_t>(numa)];
    if (height > 0) box(x, y, kNumaWidth, height, "#fafafa");
    if (height > 0) text(x + kGap, y + 17, fmt::format("NUMA {}  ·  {:.0f} GiB", memory.os_index, static_cast<double>(memory.memory_bytes) / (1 << 30)));
    int count = 0;
    for (const Core& core : node_.cores) {
      if (core.numa != numa) continue;
      const int at = x + kGap + count % kColumns * kCore, top = y + kTitle + count / kColumns * kCoreHeight;
      ++count;
      if (height == 0) continue;
      const auto ranks = ranks_on(core);
      coloured(at, top, kCore - 3, kCoreHeight - 3, ranks, fmt::format("CPUs {} {}", to_string(core.cpus), names(ranks)));
      text(at + (kCore - 3) / 2, top + 15, std::to_string(*core.cpus.begin()), 10, false, "middle");
    }
    int bottom = y + kTitle + (count + kColumns - 1) / kColumns * kCoreHeight + 4;
    const auto devices = devices_at([&](const Device&, const auto& homes) { return homes.size() == 1 && homes[0] == numa; });
    if (height > 0) return draw_devices(devices, x + kGap, bottom, 2);
    return bottom + static_cast<int>((devices.size() + 1) / 2) * (kDevice + 6) - y + 4;
  }

  int draw_package(int package, const std::vector<int>& numas, int y) {
    std::vector<int> heights;
    for (size_t i = 0; i < numas.size(); ++i) {
      if (i % kNumasInRow == 0) heights.push_back(0);
      heights.back() = std::max(heights.back(), draw_numa(numas[i], 0, 0, 0));
    }
    int height = kTitle + kGap;
    for (const int row : heights) height += row + kGap;
    box(2 * kGap - 6, y, width_ + 12 - kGap, height, "#eef3f8");
    text(2 * kGap + 4, y + 17, fmt::format("Package {}", package), 13, true);
    int top = y + kTitle + 4;
    for (size_t i = 0; i < numas.size(); ++i) {
      if (i > 0 && i % kNumasInRow == 0) top += heights[i / kNumasInRow - 1] + kGap;
      draw_numa(numas[i], 2 * kGap + static_cast<int>(i % kNumasInRow) * (kNumaWidth + kGap), top, heights[i / kNumasInRow]);
    }
    return y + height;
  }

  int draw_legend(int x, int y) {
    for (size_t r = 0; r < placements_.size(); ++r, y += kLegendLine) {
      const Placement& p = placements_[r];
      box(x, y, 16, 16, colour(r));
      const std::string words = fmt::format("rank {}: {}, CPUs {}{}", r, p.gpu < 0 ? "no GPU" : node_.gpus[static_cast<size_t>(p.gpu)].name, to_string(p.cpus),
                                            p.nic < 0 ? "" : ", " + node_.nics[static_cast<size_t>(p.nic)].name);
      text(x + 24, y + 13, words, 12);
      legend_width_ = std::max(legend_width_, 24 + kLetter * static_cast<int>(words.size()));
    }
    return y;
  }

  const Node& node_;
  const std::vector<Placement>& placements_;
  std::string body_;
  int width_ = 0, legend_width_ = kLegendWidth;
};

}  // namespace

std::string map_svg(const Node& node, const std::vector<Placement>& placements) { return Picture(node, placements).draw(); }

}  // namespace tutti::launcher
