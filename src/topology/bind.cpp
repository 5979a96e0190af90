#include "topology/bind.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "tutti/error.h"

namespace tutti::topology {
namespace {

constexpr int kMostCpus = 1 << 14, kMostNodes = 1024;
constexpr int kWordBits = static_cast<int>(sizeof(unsigned long) * CHAR_BIT);
using NodeMask = std::array<unsigned long, kMostNodes / kWordBits>;

struct FreeCpus {
  void operator()(cpu_set_t* cpus) const { CPU_FREE(cpus); }
};
using Cpus = std::unique_ptr<cpu_set_t, FreeCpus>;  // cpu_set_t itself ends at 1,024

Cpus no_cpus() {
  Cpus cpus(CPU_ALLOC(kMostCpus));
  if (!cpus) throw SystemError("no memory for a set of CPUs");
  CPU_ZERO_S(CPU_ALLOC_SIZE(kMostCpus), cpus.get());
  return cpus;
}

#ifndef MPOL_PREFERRED_MANY
constexpr int MPOL_PREFERRED_MANY = 5;  // Linux 5.15
#endif

bool prefer(int mode, const std::vector<int>& nodes, size_t how_many) {
  NodeMask mask{};
  for (size_t i = 0; i < how_many; ++i) mask[static_cast<size_t>(nodes[i] / kWordBits)] |= 1UL << (nodes[i] % kWordBits);
  return syscall(SYS_set_mempolicy, mode, mask.data(), kMostNodes) == 0;
}

}  // namespace

Granted granted() {
  Granted granted;
  const Cpus cpus = no_cpus();
  const size_t size = CPU_ALLOC_SIZE(kMostCpus);
  if (sched_getaffinity(0, size, cpus.get()) != 0) throw SystemError(fmt::format("sched_getaffinity: {}", std::strerror(errno)));
  for (int cpu = 0; cpu < kMostCpus; ++cpu)
    if (CPU_ISSET_S(static_cast<size_t>(cpu), size, cpus.get())) granted.cpus.insert(cpu);
  int mode = MPOL_DEFAULT;
  NodeMask mask{};
  if (syscall(SYS_get_mempolicy, &mode, mask.data(), kMostNodes, nullptr, 0) == 0 && mode != MPOL_DEFAULT)
    for (int node = 0; node < kMostNodes; ++node)
      if (mask[static_cast<size_t>(node / kWordBits)] >> (node % kWordBits) & 1) granted.memory.push_back(node);
  return granted;
}

std::string bind(const Placement& placement) {
  const Cpus cpus = no_cpus();
  const size_t size = CPU_ALLOC_SIZE(kMostCpus);
  for (const int cpu : placement.cpus) CPU_SET_S(static_cast<size_t>(cpu), size, cpus.get());
  if (sched_setaffinity(0, size, cpus.get()) != 0)
    throw SystemError(fmt::format("CPUs {} are refused: {}; the control group or the launcher allows others",
                                  to_string(placement.cpus), std::strerror(errno)));
  const auto& nodes = placement.memory;
  if (nodes.empty() || prefer(MPOL_PREFERRED_MANY, nodes, nodes.size()) || prefer(MPOL_PREFERRED, nodes, 1)) return "";
  return fmt::format("memory of NUMA nodes {} can't be preferred: {}", to_string(IndexSet(nodes)), std::strerror(errno));
}

std::string verify(const Placement& placement) {
  const Granted now = granted();
  std::string differs;
  if (now.cpus != placement.cpus) differs = fmt::format("CPUs {}, planned {}", to_string(now.cpus), to_string(placement.cpus));
  // the kernel's default is memory beside the CPUs, which is what plans say, too
  const IndexSet memory(now.memory), planned(placement.memory);
  if (!placement.memory.empty() && (memory & planned) != memory)
    differs += fmt::format("{}memory of NUMA nodes {}, planned {}", differs.empty() ? "" : "; ", to_string(IndexSet(now.memory)),
                           to_string(IndexSet(placement.memory)));
  return differs;
}

}  // namespace tutti::topology
