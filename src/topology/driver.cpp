#include "topology/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/by_name.h"

namespace tutti::topology {
using namespace detail;
namespace {

/// "GPU UUID: \t GPU-41b35146-..."; empty: it has no such line.
std::string value_of(std::string_view text, std::string_view key) {
  const size_t at = text.find(std::string(key) + ":");
  if (at == std::string_view::npos) return {};
  std::string_view value = text.substr(at + key.size() + 1);
  value = value.substr(0, value.find('\n'));
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  return std::string(value.substr(0, value.find_last_not_of(" \t\r") + 1));
}

/// A kernel's driver for the device; nothing: this kernel does not show it.
std::optional<std::string> kernel_driver(const std::string& root, const std::string& pci) {
  const std::string device = root + "/sys/bus/pci/devices/" + pci;
  std::error_code ignored;
  if (!std::filesystem::exists(device, ignored)) return std::nullopt;
  return std::filesystem::read_symlink(device + "/driver", ignored).filename().string();
}

}  // namespace

std::optional<std::vector<DriverGpu>> read_driver_gpus(const std::string& root) {
  std::vector<DriverGpu> gpus;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/proc/driver/nvidia/gpus", error)) {
    std::ifstream file(entry.path() / "information");
    std::string text;
    std::getline(file, text, '\0');
    const std::string uuid = value_of(text, "GPU UUID"), minor = value_of(text, "Device Minor");
    const bool is_known =
        uuid.starts_with("GPU-") && uuid.find('?') == std::string::npos;  // question marks until it is first used
    // access asks the control group, too, and does not wake the GPU as opening does
    const std::string device = fmt::format("{}/dev/nvidia{}", root, minor);
    gpus.push_back({.pci = entry.path().filename(),
                    .uuid = is_known ? uuid : "",
                    .is_reachable = minor.empty() || access(device.c_str(), R_OK | W_OK) == 0});
  }
  const bool makes_files =
      access((root + "/usr/bin/nvidia-modprobe").c_str(), X_OK) == 0 && access((root + "/dev/nvidiactl").c_str(), F_OK) != 0;
  if (gpus.empty() || (makes_files && std::ranges::none_of(gpus, &DriverGpu::is_reachable))) return std::nullopt;
  std::ranges::sort(gpus, {}, &DriverGpu::pci);
  return gpus;
}

void ask_drivers(Node& node, const std::optional<std::vector<DriverGpu>>& nvidia, const std::string& root) {
  auto& gpus = node.gpus;
  for (PciDevice& gpu : gpus) {
    if (!nvidia || gpu.vendor != "nvidia") continue;
    const auto found = std::ranges::find(*nvidia, gpu.pci, &DriverGpu::pci);
    if (found == nvidia->end()) continue;
    gpu.is_guessed = false;
    if (gpu.uuid.empty() && std::ranges::count(gpus, gpu.pci, &PciDevice::pci) == 1) gpu.uuid = found->uuid;
  }
  constexpr std::array<std::string_view, 4> kCompute{"nvidia", "amdgpu", "i915", "xe"};
  const bool is_one_sure = std::ranges::any_of(gpus, [](const PciDevice& gpu) { return !gpu.is_guessed; });
  std::erase_if(gpus, [&](const PciDevice& gpu) {
    if (!gpu.is_guessed) return false;
    const auto driver = kernel_driver(root, gpu.pci);
    const bool is_idle = driver && std::ranges::find(kCompute, *driver) == kCompute.end();
    if (is_idle) node.idle_gpus.push_back(gpu);
    return is_idle || is_one_sure;
  });
}

std::vector<std::pair<std::string, std::string>> wholes_of_parts(const std::vector<std::string>& uuids) {
  std::vector<std::pair<std::string, std::string>> known;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return known;
  const auto call = [library](const char* name, auto... arguments) { return call_by_name(library, name, arguments...) == 0; };
  struct PciInfo {  // nvmlPciInfo_t
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
  };
  using Handle = void*;  // nvmlDevice_t
  if (!call("nvmlInit_v2")) return known;
  for (const std::string& uuid : uuids) {
    Handle part = nullptr, whole = nullptr;
    PciInfo info{};
    if (call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &part) &&
        call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part, &whole) && call("nvmlDeviceGetPciInfo_v3", whole, &info))
      known.emplace_back(uuid, fmt::format("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device));
  }
  call("nvmlShutdown");
  return known;  // the library stays: hwloc may have it, too
}

const std::optional<std::vector<DriverGpu>>& driver_gpus() {
  static const auto gpus = read_driver_gpus("");
  return gpus;
}

}  // namespace tutti::topology
