#include "topology_file.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "run/process.h"
#include "topology/discover.h"
#include "tutti/error.h"

namespace tutti::launcher {

void check_topology_file(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return;
  std::string nothing;
  constexpr std::chrono::seconds kPatience(60);
  const auto read = [&](int) {
    try {
      (void)topology::read_topology(file);
    } catch (const UsageError&) {  // told by who reads it next
    }
  };
  if (!ask_apart(kPatience, nothing, read))
    throw UsageError(fmt::format("{}: hwloc can't read it; has lstopo written it whole?", file));
}

}  // namespace tutti::launcher
