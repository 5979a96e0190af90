#include "control/worker/members.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/env.h"
#include "core/log.h"

namespace tutti::detail {

Collectives::Members world_of(const Layout& layout, int worker) {
  Collectives::Members members{
      .key = world_key(), .workers = std::vector<int>(static_cast<size_t>(layout.num_workers)), .rank = worker};
  std::iota(members.workers.begin(), members.workers.end(), 0);
  return members;
}

Collectives::Members group_of(const Layout& layout, int worker) {
  if (layout.num_groups == 1) return world_of(layout, worker);  // one communicator, which takes memory of the device
  const int size = layout.group_size(), group = worker / size;
  Collectives::Members members{
      .key = group_key(group), .workers = std::vector<int>(static_cast<size_t>(size)), .rank = worker % size};
  std::iota(members.workers.begin(), members.workers.end(), group * size);
  return members;
}

Collectives::Members listed(const Layout& layout, int worker, const std::vector<int>& workers) {
  std::vector<bool> seen(static_cast<size_t>(layout.num_workers));
  int rank = -1;
  for (size_t r = 0; r < workers.size(); ++r) {
    const int other = workers[r];
    if (other < 0 || other >= layout.num_workers)
      throw UsageError(fmt::format("worker::comm: worker {}, expected 0 to {}", other, layout.num_workers - 1));
    if (seen[static_cast<size_t>(other)]) throw UsageError(fmt::format("worker::comm: worker {} is listed twice", other));
    seen[static_cast<size_t>(other)] = true;
    if (other == worker) rank = static_cast<int>(r);
  }
  if (rank < 0)
    throw UsageError(fmt::format("worker::comm: worker {} is not among the {} that are listed", worker, workers.size()));
  return {.workers = workers, .rank = rank};
}

namespace {

/// A GPU in parts (AMD's CPX, NVIDIA's MIG) is planned by the id that all of them have but for PCI's function, if at all.
std::optional<int32_t> find_planned(const std::vector<std::string>& pci_ids, const std::string& planned, size_t place) {
  const auto whole = [](const std::string& id) { return id.substr(0, id.rfind('.')); };
  std::vector<int32_t> found;
  for (size_t i = 0; i < pci_ids.size(); ++i)
    if (!planned.empty() && whole(pci_ids[i]) == whole(planned)) found.push_back(static_cast<int32_t>(i));
  if (found.empty()) return std::nullopt;
  const bool comes_first = env_string("TUTTI_DEVICES_ARE_SET") == "1";  // tutti bind has seen to it
  return comes_first ? found.front() : found[place % found.size()];
}

}  // namespace

int32_t device_id(const Layout& layout, int worker, const Shape& device_ids, const std::vector<std::string>& pci_ids,
                  const std::string& planned) {
  const auto& nodes = layout.node_of;
  const auto place = static_cast<size_t>(std::count(nodes.begin(), nodes.begin() + worker, nodes[static_cast<size_t>(worker)]));
  if (device_ids.empty() && !pci_ids.empty()) {
    if (const auto at = find_planned(pci_ids, planned, place)) return *at;
    const size_t id = place % pci_ids.size();
    if (!planned.empty())
      log(LogLevel::kWarn, "init_ccl: {} was planned for worker {}, but is none of the GPUs {} that its driver shows; takes {}",
          planned, worker, fmt::join(pci_ids, ", "), pci_ids[id]);
    return static_cast<int32_t>(id);
  }
  if (!device_ids.empty() && place >= device_ids.size())
    throw UsageError(fmt::format("init_ccl: {} device ids, expected one for each worker of a node: worker {} is its node's {}.",
                                 device_ids.size(), worker, place + 1));
  const int64_t id = device_ids.empty() ? static_cast<int64_t>(place) : device_ids[place];
  if (id < 0 || id > INT32_MAX) throw UsageError(fmt::format("init_ccl: device id {}", id));
  return static_cast<int32_t>(id);
}

}  // namespace tutti::detail
