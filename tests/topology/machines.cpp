#include "machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tutti::topology {
namespace {

class Writer {
 public:
  explicit Writer(const MadeMachine& machine) : m_(machine) {}

  std::string write() {
    const int numas = m_.packages * m_.numa_per_package, cpus = numas * m_.cores_per_numa * m_.threads;
    std::set<int> all, nodes;
    for (int c = 0; c < cpus; ++c) all.insert(c);
    for (int n = 0; n < numas; ++n) nodes.insert(n);
    nodes.insert(m_.memory_without_cpus.begin(), m_.memory_without_cpus.end());
    std::set<int> allowed = all;
    for (const int cpu : m_.forbidden_cpus) allowed.erase(cpu);
    text_ = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n";
    out("<object type=\"Machine\" os_index=\"0\" {} allowed_cpuset=\"{}\" allowed_nodeset=\"{}\" gp_index=\"{}\">",
        sets(all, nodes), mask(allowed), mask(nodes), ++id_);
    out("<info name=\"HostName\" value=\"{}\"/>", m_.name);
    for (const int number : m_.memory_without_cpus)
      out("<object type=\"NUMANode\" os_index=\"{}\" {} gp_index=\"{}\" local_memory=\"17179869184\"/>", number,
          sets({}, {number}), ++id_);
    for (int p = 0; p < m_.packages; ++p) write_package(p);
    write_devices(-1);
    out("</object>");
    if (!m_.latencies.empty()) write_latencies(numas);
    if (m_.fast_cores > 0) write_kinds(numas);
    return text_ + "</topology>\n";
  }

 private:
  template <class... Args>
  void out(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + '\n';
  }
  static int type_of(const std::string& os_device) {
    constexpr int kGpu = 1, kNetwork = 2, kOpenFabrics = 3, kCoProcessor = 5;
    for (const auto& [begin, type] :
         {std::pair("mlx", kOpenFabrics), {"cuda", kCoProcessor}, {"hs", kNetwork}, {"ib", kNetwork}, {"eth", kNetwork}})
      if (os_device.starts_with(begin)) return type;
    return kGpu;
  }
  static std::string mask(const std::set<int>& bits) {
    if (bits.empty()) return "0x0";
    std::string text;
    for (int word = *bits.rbegin() / 32; word >= 0; --word) {
      uint32_t value = 0;
      for (int bit = 0; bit < 32; ++bit)
        if (bits.contains(word * 32 + bit)) value |= uint32_t{1} << bit;
      text += fmt::format("{}0x{:08x}", text.empty() ? "" : ",", value);
    }
    return text;
  }
  static std::string sets(const std::set<int>& cpus, const std::set<int>& nodes) {
    return fmt::format("cpuset=\"{0}\" complete_cpuset=\"{0}\" nodeset=\"{1}\" complete_nodeset=\"{1}\"", mask(cpus),
                       mask(nodes));
  }
  std::set<int> core_cpus(int core) const {
    const int cores = m_.packages * m_.numa_per_package * m_.cores_per_numa;
    std::set<int> cpus;
    for (int t = 0; t < m_.threads; ++t) cpus.insert(m_.threads_are_neighbours ? core * m_.threads + t : core + t * cores);
    return cpus;
  }
  std::set<int> numa_cpus(int numa) const {
    std::set<int> cpus;
    for (int c = 0; c < m_.cores_per_numa; ++c) cpus.merge(core_cpus(numa * m_.cores_per_numa + c));
    return cpus;
  }
  void write_package(int p) {
    std::set<int> cpus, nodes;
    for (int n = p * m_.numa_per_package; n < (p + 1) * m_.numa_per_package; ++n) cpus.merge(numa_cpus(n)), nodes.insert(n);
    out("<object type=\"Package\" os_index=\"{}\" {} gp_index=\"{}\">", p, sets(cpus, nodes), ++id_);
    for (const int n : nodes) {
      const auto mine = sets(numa_cpus(n), {n});
      if (m_.numa_per_package > 1) out("<object type=\"Group\" {} gp_index=\"{}\" kind=\"1001\" subkind=\"0\">", mine, ++id_);
      out("<object type=\"NUMANode\" os_index=\"{}\" {} gp_index=\"{}\" local_memory=\"68719476736\"/>", n, mine, ++id_);
      for (int c = n * m_.cores_per_numa; c < (n + 1) * m_.cores_per_numa; ++c) {
        out("<object type=\"Core\" os_index=\"{}\" {} gp_index=\"{}\">", c, sets(core_cpus(c), {n}), ++id_);
        for (const int cpu : core_cpus(c))
          out("<object type=\"PU\" os_index=\"{}\" {} gp_index=\"{}\"/>", cpu, sets({cpu}, {n}), ++id_);
        out("</object>");
      }
      write_devices(n);
      if (m_.numa_per_package > 1) out("</object>");
    }
    out("</object>");
  }
  void write_devices(int numa) {
    for (const MadeDevice& device : m_.devices) {
      if (device.numa != numa) continue;
      const std::string domain = device.pci.substr(0, 4), bus = device.pci.substr(5, 2);
      out("<object type=\"Bridge\" gp_index=\"{}\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"{}:[{}-{}]\">", ++id_, domain,
          bus, bus);
      out("<object type=\"PCIDev\" gp_index=\"{}\" pci_busid=\"{}\" pci_type=\"{}\" pci_link_speed=\"0.000000\">", ++id_,
          device.pci, device.pci_type);
      for (const std::string& name : device.os_devices) {
        out("<object type=\"OSDev\" gp_index=\"{}\" name=\"{}\" osdev_type=\"{}\"/>", ++id_, name, type_of(name));
      }
      out("</object>");
      for (const std::string& name : device.beside)
        out("<object type=\"OSDev\" gp_index=\"{}\" name=\"{}\" osdev_type=\"1\"/>", ++id_, name);
      out("</object>");
    }
  }
  void write_latencies(int numas) {
    std::string indexes, values;
    for (int n = 0; n < numas; ++n) indexes += fmt::format("{} ", n);
    for (const int value : m_.latencies) values += fmt::format("{} ", value);
    out("<distances2 type=\"NUMANode\" nbobjs=\"{}\" kind=\"5\" name=\"NUMALatency\" indexing=\"os\">", numas);
    out("<indexes length=\"{}\">{}</indexes><u64values length=\"{}\">{}</u64values></distances2>", indexes.size(), indexes,
        values.size(), values);
  }
  void write_kinds(int numas) {
    std::set<int> fast, slow;
    for (int n = 0; n < numas; ++n)
      for (int c = 0; c < m_.cores_per_numa; ++c) (c < m_.fast_cores ? fast : slow).merge(core_cpus(n * m_.cores_per_numa + c));
    out("<cpukind cpuset=\"{}\" forced_efficiency=\"0\"/>", mask(slow));
    out("<cpukind cpuset=\"{}\" forced_efficiency=\"1\"/>", mask(fast));
  }

  const MadeMachine& m_;
  std::string text_;
  int id_ = 0;
};

/// Near ones 12, in the other package 32.
std::vector<int> two_level_latencies(int packages, int numa_per_package) {
  const int numas = packages * numa_per_package;
  std::vector<int> values;
  for (int a = 0; a < numas; ++a)
    for (int b = 0; b < numas; ++b) values.push_back(a == b ? 10 : a / numa_per_package == b / numa_per_package ? 12 : 32);
  return values;
}

std::string pci(int bus) { return fmt::format("0000:{:02x}:00.0", bus); }

}  // namespace

std::string to_xml(const MadeMachine& machine) { return Writer(machine).write(); }

std::vector<MadeMachine> known_machines() {
  const std::string amd = "0380 [1002:7408] [1002:0b0c] 01", mellanox = "0207 [15b3:101b] [15b3:0007] 00",
                    vga = "0300 [1a03:2000] [1a03:2000] 41";
  std::vector<MadeMachine> machines;
  // eight GPUs behind four of eight NUMA nodes, a card beside each pair
  MadeMachine dgx{.name = "dgx",
                  .packages = 2,
                  .numa_per_package = 4,
                  .cores_per_numa = 16,
                  .threads = 2,
                  .latencies = two_level_latencies(2, 4)};
  const int homes[] = {3, 3, 1, 1, 7, 7, 5, 5};
  for (int g = 0; g < 8; ++g)
    dgx.devices.push_back({homes[g], pci(0x07 + 8 * g), {fmt::format("cuda{}", g), fmt::format("nvml{}", g)}});
  for (int g = 0; g < 8; g += 2) dgx.devices.push_back({homes[g], pci(0x0c + 8 * g), {fmt::format("mlx5_{}", g / 2)}, mellanox});
  dgx.devices.push_back({0, pci(2), {}, vga});
  machines.push_back(dgx);
  // one package, four NUMA nodes, eight halves of MI250X: the first pair belongs to the last NUMA node
  MadeMachine mi250x{.name = "mi250x",
                     .packages = 1,
                     .numa_per_package = 4,
                     .cores_per_numa = 16,
                     .threads = 2,
                     .latencies = two_level_latencies(1, 4)};
  const int crossed[] = {3, 3, 1, 1, 0, 0, 2, 2}, buses[] = {0xc1, 0xc6, 0xc9, 0xce, 0xd1, 0xd6, 0xd9, 0xde};
  for (int g = 0; g < 8; ++g) mi250x.devices.push_back({crossed[g], pci(buses[g]), {fmt::format("rsmi{}", g)}, amd});
  machines.push_back(mi250x);
  // four GPUs on eight NUMA nodes; nothing but PCI tells of them
  MadeMachine uneven{
      .name = "four-on-eight", .packages = 2, .numa_per_package = 4, .cores_per_numa = 8, .latencies = two_level_latencies(2, 4)};
  for (int g = 0; g < 4; ++g) uneven.devices.push_back({2 * g + 1, pci(0x10 + 0x20 * g), {}});
  uneven.devices.push_back({0, pci(3), {}, vga});
  machines.push_back(uneven);
  // MI300A: four, each with its cores; whole, in three, in six parts
  for (const auto& [mode, parts] : {std::pair("spx", 1), std::pair("tpx", 3), std::pair("cpx", 6)}) {
    MadeMachine mi300a{.name = fmt::format("mi300a-{}", mode),
                       .packages = 4,
                       .numa_per_package = 1,
                       .cores_per_numa = 24,
                       .threads = 2,
                       .latencies = two_level_latencies(4, 1)};
    for (int g = 0; g < 4; ++g) {
      MadeDevice gpu{g, fmt::format("000{}:01:00.0", g), {}, "1200 [1002:74a0] [1002:74a0] 00"};
      for (int part = 0; part < parts; ++part) gpu.os_devices.push_back(fmt::format("rsmi{}", g * parts + part));
      mi300a.devices.push_back(gpu);
    }
    machines.push_back(mi300a);
  }
  machines.push_back(
      {.name = "no-gpu", .packages = 2, .numa_per_package = 2, .cores_per_numa = 6, .devices = {{0, pci(3), {}, vga}}});
  MadeMachine power{.name = "power-smt4",
                    .packages = 2,
                    .cores_per_numa = 10,
                    .threads = 4,
                    .threads_are_neighbours = true,
                    .memory_without_cpus = {252, 253},
                    .latencies = {10, 40, 40, 10}};
  for (int g = 0; g < 4; ++g)
    power.devices.push_back({g / 2,
                             fmt::format("00{:02x}:{:02x}:00.0", g < 2 ? 4 : 0x35, 3 + g),
                             {fmt::format("cuda{}", g), fmt::format("nvml{}", g)}});
  machines.push_back(power);
  MadeMachine single{.name = "single", .packages = 1, .cores_per_numa = 8, .threads = 2, .fast_cores = 4};
  for (int g = 0; g < 2; ++g) single.devices.push_back({-1, pci(0x21 + g), {fmt::format("cuda{}", g)}});
  machines.push_back(single);
  // a control group leaves parts of two NUMA nodes
  MadeMachine restricted = uneven;
  restricted.name = "restricted";
  for (int cpu = 0; cpu < 64; ++cpu)
    if (cpu < 10 || (cpu >= 16 && cpu < 44) || cpu >= 50) restricted.forbidden_cpus.push_back(cpu);
  machines.push_back(restricted);
  return machines;
}

}  // namespace tutti::topology
