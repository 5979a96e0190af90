// GPUs as the driver's files have them: made-up files, real control groups.
#include "topology/driver.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::topology {
namespace {

struct Root {
  std::string path;
  Root() {
    char name[] = "/tmp/tutti-driver-XXXXXX";
    path = mkdtemp(name);
    std::filesystem::create_directories(path + "/dev");
  }
  ~Root() { std::filesystem::remove_all(path); }
  void add_gpu(const std::string& pci, const std::string& uuid, int minor) const {
    const std::string folder = path + "/proc/driver/nvidia/gpus/" + pci;
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/information") << "Model: \t\t NVIDIA H200\nIRQ:   \t\t 116\nGPU UUID: \t " << uuid
                                           << "\nVideo BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nDevice Minor: \t " << minor
                                           << "\nGPU Excluded:\t No\n";
  }
  std::string device(int minor) const { return path + "/dev/nvidia" + std::to_string(minor); }
};

TEST(Driver, tells_of_its_gpus_and_which_may_be_opened) {
  const Root root;
  EXPECT_FALSE(read_driver_gpus(root.path)) << "no driver";
  root.add_gpu("0000:c1:00.0", "GPU-2c7a", 1);
  root.add_gpu("0000:41:00.0", "GPU-????????", 0);
  std::ofstream(root.device(1)).flush();
  const auto gpus = read_driver_gpus(root.path);
  ASSERT_TRUE(gpus && gpus->size() == 2);
  EXPECT_EQ((*gpus)[0].pci, "0000:41:00.0");
  EXPECT_EQ((*gpus)[0].uuid, "") << "not known before it is used";
  EXPECT_FALSE((*gpus)[0].is_reachable) << "a container has no file for it";
  EXPECT_EQ((*gpus)[1].pci, "0000:c1:00.0");
  EXPECT_EQ((*gpus)[1].uuid, "GPU-2c7a");
  EXPECT_TRUE((*gpus)[1].is_reachable);
}

TEST(Driver, files_of_another_shape_say_nothing) {
  const Root root;
  std::filesystem::create_directories(root.path + "/proc/driver/nvidia/gpus/0000:41:00.0");
  for (const char* text : {"", "Device Minor:", "GPU UUID", "Device Minor: \n\nGPU UUID: \t "}) {
    std::ofstream(root.path + "/proc/driver/nvidia/gpus/0000:41:00.0/information") << text;
    const auto gpus = read_driver_gpus(root.path);
    ASSERT_TRUE(gpus && gpus->size() == 1);
    EXPECT_TRUE((*gpus)[0].is_reachable);
    EXPECT_EQ((*gpus)[0].uuid, "");
  }
}

PciDevice guess(const std::string& pci, const std::string& vendor) {
  PciDevice gpu{.name = pci, .pci = pci, .vendor = vendor};
  gpu.is_guessed = true;
  return gpu;
}

TEST(Driver, guesses_go_where_others_are_sure_and_where_none_can_compute) {
  const Root root;
  const auto left = [&root](std::vector<PciDevice> gpus, const std::optional<std::vector<DriverGpu>>& nvidia) {
    Node node;
    node.gpus = std::move(gpus);
    ask_drivers(node, nvidia, root.path);
    std::string text;
    for (const PciDevice& gpu : node.gpus) text += gpu.pci + (gpu.is_guessed ? "? " : " ") + gpu.uuid;
    for (const PciDevice& gpu : node.idle_gpus) text += " idle " + gpu.pci;
    return text;
  };
  const std::vector<DriverGpu> nvidia{{"0000:41:00.0", "GPU-1", true}};
  EXPECT_EQ(left({guess("0000:41:00.0", "nvidia"), guess("0000:c6:00.0", "amd")}, nvidia), "0000:41:00.0 GPU-1")
      << "a processor's graphics";
  PciDevice sure = guess("0000:41:00.0", "nvidia");
  sure.is_guessed = false;  // by hwloc's nvml, which sees what this process's control group leaves
  EXPECT_EQ(left({sure, guess("0000:c1:00.0", "nvidia"), guess("0000:c6:00.0", "amd")},
                 std::vector<DriverGpu>{{"0000:41:00.0", "GPU-1", true}, {"0000:c1:00.0", "GPU-2", false}}),
            "0000:41:00.0 GPU-10000:c1:00.0 GPU-2")
      << "one rank's GPU is not the node's";
  EXPECT_EQ(left({guess("0000:c6:00.0", "amd")}, std::nullopt), "0000:c6:00.0? ") << "a kernel that does not show it";
  const std::string devices = root.path + "/sys/bus/pci/devices/";
  for (const auto& [pci, driver] :
       {std::pair("0000:01:00.0", "nouveau"), {"0000:02:00.0", "amdgpu"}, {"0000:03:00.0", "vfio-pci"}, {"0000:04:00.0", ""}}) {
    std::filesystem::create_directories(devices + pci);
    if (*driver) std::filesystem::create_symlink(std::string("../../../bus/pci/drivers/") + driver, devices + pci + "/driver");
  }
  EXPECT_EQ(left({guess("0000:01:00.0", "nvidia"), guess("0000:02:00.0", "amd"), guess("0000:03:00.0", "nvidia"),
                  guess("0000:04:00.0", "nvidia")},
                 std::nullopt),
            "0000:02:00.0?  idle 0000:01:00.0 idle 0000:03:00.0 idle 0000:04:00.0");
}

TEST(Driver, device_files_may_be_made_later) {
  const Root root;
  root.add_gpu("0000:41:00.0", "GPU-a", 0);
  EXPECT_FALSE((*read_driver_gpus(root.path))[0].is_reachable) << "a container without GPUs";
  std::filesystem::create_directories(root.path + "/usr/bin");
  std::ofstream(root.path + "/usr/bin/nvidia-modprobe").flush();
  chmod((root.path + "/usr/bin/nvidia-modprobe").c_str(), 0755);
  EXPECT_FALSE(read_driver_gpus(root.path)) << "before the first program on a machine without a desktop";
  std::ofstream(root.path + "/dev/nvidiactl").flush();
  EXPECT_FALSE((*read_driver_gpus(root.path))[0].is_reachable) << "some have been made, and not this";
}

/// As Slurm does with ConstrainDevices.
TEST(Driver, control_groups_hide_gpus) {
  const Root root;
  root.add_gpu("0000:41:00.0", "GPU-a", 0);
  root.add_gpu("0000:c1:00.0", "GPU-b", 1);
  const std::string group = "/sys/fs/cgroup/devices/tutti-test-" + std::to_string(getpid());
  if (mknod(root.device(0).c_str(), S_IFCHR | 0666, makedev(1, 5)) != 0 ||
      mknod(root.device(1).c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0 || mkdir(group.c_str(), 0755) != 0)
    GTEST_SKIP() << "no control group of devices can be made here";
  std::ofstream(group + "/devices.deny") << "c 1:5 rwm" << std::flush;
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(group + "/cgroup.procs") << getpid() << std::flush;
    const auto gpus = read_driver_gpus(root.path);
    _exit(gpus && gpus->size() == 2 && !(*gpus)[0].is_reachable && (*gpus)[1].is_reachable ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  rmdir(group.c_str());
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tutti::topology
