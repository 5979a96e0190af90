#include "topology/discover.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>

#include "machines.h"
#include "tutti/error.h"

namespace tutti::topology {
namespace {

Node machine(const std::string& name) {
  for (const MadeMachine& known : known_machines())
    if (known.name == name) return parse_topology(to_xml(known));
  throw UsageError("no machine " + name);
}

TEST(Discover, finds_gpus_and_the_numa_node_they_are_on) {
  const Node node = machine("dgx");
  EXPECT_EQ(node.host, "dgx");
  ASSERT_EQ(node.gpus.size(), 8U) << "a GPU has a device of several libraries; a mainboard's VGA is none";
  EXPECT_EQ(node.gpus[0].name, "cuda0");
  EXPECT_EQ(node.gpus[0].pci, "0000:07:00.0");
  EXPECT_EQ(node.gpus[0].vendor, "nvidia");
  EXPECT_EQ(to_string(node.gpus[0].near), "48-63,176-191");
  ASSERT_EQ(node.nics.size(), 4U);
  EXPECT_EQ(node.nics[1].name, "mlx5_1");
  ASSERT_EQ(node.numa.size(), 8U);
  EXPECT_EQ(node.gpus[0].distances, (std::vector{12, 12, 12, 11, 32, 32, 32, 32}));
  EXPECT_EQ(node.cores.size(), 128U);
  EXPECT_EQ(to_string(node.cores[0].cpus), "0,128");
}

TEST(Discover, finds_gpus_by_their_pci_class) {
  const Node node = machine("four-on-eight");
  ASSERT_EQ(node.gpus.size(), 4U);
  EXPECT_EQ(node.gpus[0].name, node.gpus[0].pci);
}

TEST(Discover, parts_of_a_gpu_are_devices) {
  EXPECT_EQ(machine("mi300a-spx").gpus.size(), 4U);
  const Node node = machine("mi300a-cpx");
  ASSERT_EQ(node.gpus.size(), 24U);
  EXPECT_EQ(node.gpus[5].name, "rsmi5");
  EXPECT_EQ(node.gpus[5].pci, node.gpus[0].pci);
  EXPECT_EQ(node.gpus[10].name, "rsmi10") << "parts in the order of their numbers";
}

TEST(Discover, parts_that_hwloc_leaves_at_the_bridge_are_of_the_gpu_before_them) {  // hwloc before 2.12 with ROCm
  for (MadeMachine whole : known_machines()) {
    if (whole.name != "mi300a-cpx" && whole.name != "mi300a-tpx") continue;
    const Node expected = parse_topology(to_xml(whole));
    for (MadeDevice& device : whole.devices)
      device.beside.assign(device.os_devices.begin() + 1, device.os_devices.end()), device.os_devices.resize(1);
    const Node node = parse_topology(to_xml(whole));
    ASSERT_EQ(node.gpus.size(), expected.gpus.size());
    for (size_t g = 0; g < node.gpus.size(); ++g) {
      EXPECT_EQ(node.gpus[g].name, expected.gpus[g].name);
      EXPECT_EQ(node.gpus[g].pci, expected.gpus[g].pci);
      EXPECT_EQ(node.gpus[g].near, expected.gpus[g].near);
    }
  }
}

TEST(Discover, finds_network_cards_by_their_pci_class_and_id) {  // sites name interfaces as they like
  MadeMachine machine{.name = "slingshot", .packages = 4, .cores_per_numa = 4};
  const std::string cassini = "0200 [17db:0501] [17db:0000] 00", ethernet = "0200 [8086:1533] [8086:1533] 00";
  const std::string mellanox = "0207 [15b3:101b] [15b3:0007] 00", omni_path = "0208 [8086:24f0] [8086:24f0] 00";
  for (int n = 0; n < 4; ++n)
    machine.devices.push_back({n, "000" + std::to_string(n) + ":11:00.0", {"hsi" + std::to_string(n)}, cassini});
  machine.devices.push_back({0, "0000:21:00.0", {"eth0"}, ethernet});
  machine.devices.push_back({1, "0000:22:00.0", {"ib0", "mlx5_0"}, mellanox});
  machine.devices.push_back({2, "0000:23:00.0", {"ib1"}, omni_path});
  machine.devices.push_back({3, "0000:24:00.0", {}, mellanox});  // a virtual function that no driver has
  std::vector<std::string> names;
  for (const PciDevice& nic : parse_topology(to_xml(machine)).nics) names.push_back(nic.name);
  EXPECT_EQ(names, (std::vector<std::string>{"hsi0", "mlx5_0", "ib1", "hsi1", "hsi2", "hsi3"})) << "by PCI id";
}

TEST(Discover, leaves_out_memory_without_cpus_and_cpus_that_are_forbidden) {
  EXPECT_EQ(machine("power-smt4").numa.size(), 2U);
  EXPECT_EQ(to_string(machine("power-smt4").cores[1].cpus), "4-7");
  EXPECT_EQ(to_string(cpus_of(machine("restricted"))), "10-15,44-49");
}

TEST(Discover, tells_kinds_of_cores) {
  const Node node = machine("single");
  EXPECT_GT(node.cores[0].kind, node.cores[7].kind);
}

TEST(Discover, distances_are_latencies_where_they_are_known) {
  const Node node = machine("dgx");
  EXPECT_EQ(distance(node.cores[48], node.gpus[0]), 0);
  EXPECT_EQ(distance(node.cores[0], node.gpus[0]), 12);
  EXPECT_EQ(distance(node.cores[64], node.gpus[0]), 32);
}

TEST(Discover, this_machine) {
  const Node node = discover();
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  const IndexSet all = cpus_of(node);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mine)) {
      EXPECT_TRUE(all.contains(cpu)) << cpu;
    }
  }
  EXPECT_EQ(usable_cpus(), all);
  EXPECT_FALSE(node.host.empty());
  EXPECT_GE(node.numa.size(), 1U);
}

TEST(Discover, refuses_what_is_no_topology) {
  for (const char* text : {"", "no XML", "<topology/>", "<?xml version=\"1.0\"?><topology version=\"2.0\"></topology>"})
    EXPECT_THROW((void)parse_topology(text), UsageError) << text;
  std::string cut = to_xml(known_machines()[0]);
  cut.resize(cut.size() / 2);
  EXPECT_THROW((void)parse_topology(cut), UsageError);
  EXPECT_THROW((void)read_topology("/nowhere.xml"), UsageError);
}

TEST(IndexSet, is_written_and_read_as_linux_does) {
  EXPECT_EQ(to_string(IndexSet{3, 1, 2, 8, 10, 11}), "1-3,8,10-11");
  EXPECT_EQ(parse_index_set("1-3,8,10-11"), (IndexSet{1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_index_set(""), IndexSet());
  for (const char* wrong : {"a", "1,", ",1", "3-1", "1-", "-1", "1 2", "99999999", "1--2"})
    EXPECT_THROW((void)parse_index_set(wrong), UsageError) << wrong;
}

}  // namespace
}  // namespace tutti::topology
