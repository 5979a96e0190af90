// Machines to plan for, as hwloc writes them.
#pragma once

#include <string>
#include <vector>

namespace tutti::topology {

struct MadeDevice {
  int numa = 0;                         ///< logical, over the machine; -1: the whole machine
  std::string pci;                      ///< "0000:41:00.0"
  std::vector<std::string> os_devices;  ///< none: PCI alone says that it is a GPU
  std::string pci_type = "0302 [10de:2330] [10de:16c1] a1";
  std::vector<std::string> beside = {};  ///< OS devices at its bridge, as hwloc before 2.12 has parts of AMD's GPUs
};

struct MadeMachine {
  std::string name;
  int packages = 1, numa_per_package = 1, cores_per_numa = 4, threads = 1;
  bool threads_are_neighbours =
      false;  ///< CPUs of a core are numbered one after another (POWER), else a machine's first threads come first (x86)
  std::vector<MadeDevice> devices = {};
  std::vector<int> forbidden_cpus = {};       ///< by a control group
  std::vector<int> memory_without_cpus = {};  ///< numbers of NUMA nodes
  int fast_cores = 0;                         ///< of each NUMA node, the first are of a faster kind; 0: all alike
  std::vector<int> latencies = {};            ///< NUMA x NUMA; none: unknown
};

std::string to_xml(const MadeMachine& machine);
std::vector<MadeMachine> known_machines();  ///< like real ones

}  // namespace tutti::topology
