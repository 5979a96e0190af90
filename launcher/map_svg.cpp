#include "map_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "svg.h"

namespace tutti::launcher {
namespace {

using namespace svg;
using namespace topology;

constexpr int kSlideWidth = 1600, kSlideHeight = 900, kMargin = 16;
constexpr int kCore = 27, kCoreHeight = 21, kCoreGap = 3, kDevice = 115, kDeviceHeight = 40, kLegendLine = 22;
constexpr double kMostScale = 2.5;    // a small machine does not fill the slide
constexpr size_t kMostInLegend = 48;  // a longer one would leave no room

class Picture {
 public:
  Picture(const Node& node, const std::vector<Placement>& placements) : node_(node), placements_(placements) {
    for (const Core& core : node.cores)
      if (auto& numas = packages_[core.package]; !std::ranges::count(numas, core.numa)) numas.push_back(core.numa);
    for (const auto& [package, numas] : packages_) most_numas_ = std::max(most_numas_, static_cast<int>(numas.size()));
    for (const Core& core : node.cores) cores_[core.numa].push_back(draw_core(core));
    for (const auto* list : {&node.gpus, &node.nics})
      for (const PciDevice& device : *list) devices_[home_of(device)].push_back(draw_device(device, list == &node.nics));
    for (size_t r = 0; r < std::min(placements.size(), kMostInLegend); ++r) legend_.push_back(draw_in_legend(r));
    if (placements.size() > kMostInLegend) {
      const std::string rest = fmt::format("and {} more ranks", placements.size() - kMostInLegend);
      legend_.push_back({24 + width_of(rest, 12), kLegendLine, text(24, 13, rest, 12)});
    }
  }

  /// Of all ways to put cores, NUMA nodes, packages and the legend beside each other, the one that fills a slide best.
  std::string draw() const {
    Drawn best;
    double scale = 0;
    for (const int in_numa : {8, 4, 6, 12, 16, 24}) {
      const auto numas = draw_numas(in_numa);
      for (int in_package = 1; in_package <= most_numas_; ++in_package)
        for (int packages = 1; packages <= static_cast<int>(packages_.size()); ++packages) {
          const Drawn machine = draw_machine(numas, in_package, packages);
          for (int in_legend = 1; in_legend <= 6; ++in_legend)
            for (const int beside : {2, 1}) {
              const Drawn all = in_rows({machine, in_rows(legend_, in_legend, kGap, 0)}, beside, 2 * kGap);
              const double by_width = kSlideWidth / (all.width + 2.0 * kMargin);
              const double by_height = kSlideHeight / (all.height + 2.0 * (kMargin + kTitle));
              const double this_scale = std::min({kMostScale, by_width, by_height});
              if (this_scale > scale) scale = this_scale, best = all;
            }
        }
    }
    return on_slide(best, scale);
  }

 private:
  // ---- who has what

  /// The NUMA node beside the device; -1: several or none.
  int home_of(const PciDevice& device) const {
    std::vector<int> homes;
    for (const Core& core : node_.cores)
      if (intersect(core.cpus, device.near) && !std::ranges::count(homes, core.numa)) homes.push_back(core.numa);
    return homes.size() == 1 ? homes[0] : -1;
  }
  template <class Has>
  std::vector<size_t> ranks_that(const Has& has) const {
    std::vector<size_t> ranks;
    for (size_t r = 0; r < placements_.size(); ++r)
      if (has(placements_[r])) ranks.push_back(r);
    return ranks;
  }
  static std::string names(const std::vector<size_t>& ranks) {
    const IndexSet numbers(std::vector<int>(ranks.begin(), ranks.end()));
    return ranks.empty() ? "no rank" : (ranks.size() == 1 ? "rank " : "ranks ") + to_string(numbers);
  }
  std::string title() const {
    constexpr size_t kMostOfName = 40;
    const auto& gpus = node_.gpus;
    const bool is_one =
        !gpus.empty() && std::ranges::all_of(gpus, [&](const PciDevice& gpu) { return gpu.model == gpus[0].model; });
    const std::string model = is_one && !gpus[0].model.empty() ? " (" + shortened(gpus[0].model, kMostOfName) + ")" : "";
    const std::string host = node_.host.empty() ? "node" : shortened(node_.host, kMostOfName);
    const auto plural = [](size_t n) { return n == 1 ? "" : "s"; };
    return fmt::format("{}: {} rank{}, {} GPU{}{}, {} cores", host, placements_.size(), plural(placements_.size()), gpus.size(),
                       plural(gpus.size()), model, node_.cores.size());
  }

  // ---- parts, from the smallest on

  /// In the rank's colour; two ranks have a half each. The stripes of more ranks are below the words, which stay legible so.
  static std::string coloured(int width, int height, const std::vector<size_t>& ranks, const std::string& tip) {
    const auto n = static_cast<int>(std::min<size_t>(ranks.size(), 8));
    const int band = n > 2 ? height / 7 : height;
    std::string stripes;
    for (int i = 0; i < n; ++i) {
      const int begin = i * width / n, end = (i + 1) * width / n;
      stripes += moved(begin, height - band, box(end - begin, band, colour(ranks[static_cast<size_t>(i)]), tip));
    }
    return box(width, height, "#f2f2f2", tip) + stripes;
  }
  Drawn draw_core(const Core& core) const {
    const auto ranks = ranks_that([&](const Placement& p) { return intersect(p.cpus, core.cpus); });
    const std::string tip = fmt::format("CPUs {}: {}", to_string(core.cpus), names(ranks));
    const std::string number = std::to_string(*core.cpus.begin());
    return {kCore, kCoreHeight, coloured(kCore, kCoreHeight, ranks, tip) + text(kCore / 2, 14, number, 10, kCentred)};
  }
  Drawn draw_device(const PciDevice& device, bool is_nic) const {
    constexpr size_t kMostOfName = 13, kMostOfRanks = 16;
    const auto& list = is_nic ? node_.nics : node_.gpus;
    const auto ranks = ranks_that([&](const Placement& p) {
      const int chosen = is_nic ? p.nic : p.gpu;
      return chosen >= 0 && &list[static_cast<size_t>(chosen)] == &device;
    });
    std::string name = device.name;
    if (const size_t part = name.find(" MIG-"); part != std::string::npos) name.erase(0, part + 1);  // a part's own name
    const std::string tip = fmt::format("{} {} {}: {}", device.name, device.pci, device.model, names(ranks));
    const auto colours = is_nic ? std::vector<size_t>() : ranks;
    return {kDevice, kDeviceHeight,
            coloured(kDevice, kDeviceHeight, colours, tip) +
                text(kDevice / 2, 15, shortened(name, kMostOfName), 12, kBoldCentred) +
                text(kDevice / 2, 30, shortened(names(ranks), kMostOfRanks), 11, kCentred)};
  }
  Drawn draw_in_legend(size_t rank) const {
    constexpr size_t kMost = 56;
    const Placement& p = placements_[rank];
    const std::string gpu = p.gpu < 0 ? "no GPU" : node_.gpus[static_cast<size_t>(p.gpu)].name;
    const std::string nic = p.nic < 0 ? "" : ", " + node_.nics[static_cast<size_t>(p.nic)].name;
    const std::string words = shortened(fmt::format("rank {}: {}, CPUs {}{}", rank, gpu, to_string(p.cpus), nic), kMost);
    return {24 + width_of(words, 12), kLegendLine, box(16, 16, colour(rank)) + text(24, 13, words, 12)};
  }

  /// All are as large as the largest, so that they stand in line.
  std::vector<Drawn> draw_numas(int in_numa) const {
    std::vector<Drawn> insides, numas;
    for (size_t n = 0; n < node_.numa.size(); ++n) {
      const int width = in_numa * (kCore + kCoreGap);
      const Drawn cores = in_rows(at(cores_, static_cast<int>(n)), in_numa, kCoreGap);
      insides.push_back(in_rows({cores, draw_devices(static_cast<int>(n), width)}, 1, kGap));
    }
    const int width = most(insides, &Drawn::width), height = most(insides, &Drawn::height);
    for (size_t n = 0; n < insides.size(); ++n) {
      const double gib = static_cast<double>(node_.numa[n].memory_bytes) / (1 << 30);
      const std::string words = fmt::format("NUMA {}  ·  {:.0f} GiB", node_.numa[n].os_index, gib);
      numas.push_back(framed(insides[n], width, height, words, "#fafafa", ""));
    }
    return numas;
  }
  Drawn draw_devices(int home, int width) const {
    return in_rows(at(devices_, home), std::max(1, (width + kGap) / (kDevice + kGap)), kGap);
  }
  Drawn draw_machine(const std::vector<Drawn>& numas, int in_package, int in_machine) const {
    std::vector<Drawn> insides, packages;
    for (const auto& [package, its] : packages_) {
      std::vector<Drawn> parts;
      for (const int numa : its) parts.push_back(numas[static_cast<size_t>(numa)]);
      insides.push_back(in_rows(parts, in_package, kGap));
    }
    const int width = most(insides, &Drawn::width), height = most(insides, &Drawn::height);
    size_t i = 0;
    for (const auto& [package, its] : packages_)
      packages.push_back(framed(insides[i++], width, height, fmt::format("Package {}", package), "#eef3f8", kBold));
    const Drawn all = in_rows(packages, in_machine, kGap);
    return in_rows({all, draw_devices(-1, all.width)}, 1, kGap);
  }
  static std::vector<Drawn> at(const std::map<int, std::vector<Drawn>>& parts, int key) {
    const auto found = parts.find(key);
    return found == parts.end() ? std::vector<Drawn>() : found->second;
  }

  /// In the middle, with the title above.
  std::string on_slide(const Drawn& all, double scale) const {
    const double width = kSlideWidth / scale, height = kSlideHeight / scale;
    const int title_bottom = kMargin + 16;
    const std::string words = title();
    const double letter = kBoldLetter * static_cast<double>(words.size()), size = std::min(16.0, (width - 2 * kMargin) / letter);
    const double left = (width - all.width) / 2, top = std::max(kMargin + 2.0 * kTitle, (height - all.height) / 2);
    const double title_at = std::min(left, width - kMargin - letter * size);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {:.1f} {:.1f}\" "
        "font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"{:.1f}\" y=\"{}\" font-size=\"{:.1f}\"{}>{}</text>\n"
        "<g transform=\"translate({:.1f} {:.1f})\">\n{}</g>\n</svg>\n",
        kSlideWidth, kSlideHeight, width, height, title_at, title_bottom, size, kBold, escaped(words), left, top, all.svg);
  }

  const Node& node_;
  const std::vector<Placement>& placements_;
  std::map<int, std::vector<int>> packages_;           // their NUMA nodes
  std::map<int, std::vector<Drawn>> cores_, devices_;  // of a NUMA node
  std::vector<Drawn> legend_;
  int most_numas_ = 1;
};

}  // namespace

std::string map_svg(const Node& node, const std::vector<Placement>& placements) { return Picture(node, placements).draw(); }

}  // namespace tutti::launcher
