#include "current_device.h"

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <vector>

#include "core/by_name.h"
#include "core/pci_id.h"
#include "run/process.h"

namespace tutti::launcher {
using namespace detail;
namespace {

std::string ask(const std::string& vendor) {
  std::array<char, 32> id{};
  const auto size = static_cast<int>(id.size());
  void* library = nullptr;
  for (const char* name :
       vendor == "nvidia" ? std::vector{"libcuda.so.1"} : std::vector{"libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.5"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) return {};
  int device = 0;
  const auto call = [library](const char* name, auto... arguments) { return call_by_name(library, name, arguments...) == 0; };
  const bool is_told = vendor == "nvidia" ? call("cuInit", 0U) && call("cuDeviceGet", &device, 0) &&
                                                call("cuDeviceGetPCIBusId", id.data(), size, device)
                                          : call("hipInit", 0U) && call("hipDeviceGetPCIBusId", id.data(), size, device);
  return is_told ? id.data() : "";
}

}  // namespace

std::optional<std::string> current_device(const std::string& vendor) {
  constexpr std::chrono::seconds kPatience(15);
  std::string id;
  if ((vendor != "nvidia" && vendor != "amd") || !ask_apart(kPatience, id, [&](int to) { write_all(to, ask(vendor)); }) ||
      id.empty())
    return std::nullopt;
  return normal_pci_id(id);
}

}  // namespace tutti::launcher
