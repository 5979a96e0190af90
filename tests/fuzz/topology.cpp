// What a launcher's variables, a list of CPUs and a machine's XML say, and plans for what comes of it.
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>

#include "../topology/machines.h"
#include "topology/discover.h"
#include "topology/launcher.h"
#include "topology/plan.h"
#include "tutti/error.h"

using namespace tutti::topology;

/// A machine's XML with some digits replaced: what is no XML at all gets nowhere. Attributes keep their names, as hwloc 2.9
/// crashes where it misses one.
static std::string damaged(const std::string& by) {
  static const auto machines = known_machines();
  if (by.empty()) return {};
  std::string xml = to_xml(machines[static_cast<unsigned char>(by[0]) % machines.size()]);
  for (size_t i = 1; i + 3 < by.size(); i += 4) {
    size_t at = 0;
    for (size_t k = 0; k < 3; ++k) at = at << 8 | static_cast<unsigned char>(by[i + k]);
    char& c = xml[at % xml.size()];
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) c = static_cast<char>('0' + static_cast<unsigned char>(by[i + 3]) % 10);
  }
  return xml;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto environment = [&](const char*) -> std::optional<std::string> { return text; };
  Node node;
  node.numa.push_back({});
  for (int c = 0; c < 4; ++c) node.cores.push_back({.cpus = {c}});
  for (int g = 0; g < 3; ++g)
    node.gpus.push_back({.pci = std::to_string(g),
                         .uuid = "GPU-" + std::to_string(g),
                         .vendor = g < 2 ? "nvidia" : "amd",
                         .near = {g},
                         .distances = {20}});
  try {
    switch (data[0] % 5) {
      case 0: (void)parse_index_set(text); break;
      case 1: (void)local_rank(environment); break;
      case 2: {
        std::vector<std::string> notes;
        (void)plan(node, std::vector<Limits>(3, {{}, visible_gpus(environment, node, notes)}));
        break;
      }
      case 3: (void)plan(parse_topology(text), 3); break;
      default: (void)plan(parse_topology(damaged(text)), 3); break;
    }
  } catch (const tutti::UsageError&) {
  }
  return 0;
}
