// GPUs, their driver, NCCL.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "collective/nccl/library.h"
#include "core/by_name.h"
#include "core/settings.h"
#include "device/cuda/driver.h"
#include "doctor/checks.h"
#include "run/process.h"
#include "topology/discover.h"
#include "topology/driver.h"
#include "topology/launcher.h"
#include "tutti/dlpack.h"
#include "tutti/error.h"

namespace tutti::launcher {
using namespace detail;
namespace {

constexpr std::chrono::seconds kPatience(15);
constexpr const char* kReset = "dmesg | grep -i xid; a GPU may have to be reset, or the machine started again";
constexpr const char* kAskForGpus = "if this job is to have GPUs: docker run --gpus all, apptainer run --nv, Slurm's --gpus";

std::string set_or(const std::string& set, const char* usual) { return set.empty() ? usual : set; }
std::string cuda_library() { return set_or(settings().cuda_library, "libcuda.so.1"); }
std::string nccl_library() { return set_or(settings().nccl_library, "libnccl.so.2"); }

/// What init_ccl would say of a driver, or of NCCL, and what to do. In a process of its own. Nothing: all is well.
struct Refusal {
  std::string why, fix;
};
template <class Library>
std::optional<Refusal> refusal(int32_t device_type) {
  std::string said;
  const auto look = [&](int to) {
    for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) unsetenv(name);
    try {
      (void)Library::of(device_type);
    } catch (const Error& error) {
      write_all(to, error.what());
    }
  };
  if (!ask_apart(kPatience, said, look))
    return Refusal{"it crashes, or does not answer within 15 s, when it is loaded",
                   "load it by itself (python3 -c \"import ctypes; ctypes.CDLL('libcuda.so.1')\", or that name of NCCL); dmesg "
                   "may tell more"};
  if (said.empty()) return std::nullopt;
  const size_t end = said.find("; ");
  return Refusal{said.substr(0, end), end == std::string::npos ? "read the message" : said.substr(end + 2)};
}

/// What CUDA's driver says of itself, whatever this process is to see of it.
struct Driver {
  int is_there = 0, init = 0, version = 0, devices = 0;  // 12020: up to CUDA 12.2
};

Driver ask_driver() {
  unsetenv("CUDA_VISIBLE_DEVICES");
  void* library = dlopen(cuda_library().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return {};
  Driver driver{.is_there = 1};
  driver.init = call_by_name(library, "cuInit", 0U);
  call_by_name(library, "cuDriverGetVersion", &driver.version);
  if (driver.init == 0) call_by_name(library, "cuDeviceGetCount", &driver.devices);
  return driver;
}

/// A driver in a bad state hangs, or worse: nothing.
std::optional<Driver> driver_here() {
  std::string answer;
  const auto tell = [](int to) {
    const Driver driver = ask_driver();
    write_all(to, fmt::format("{} {} {} {}", driver.is_there, driver.init, driver.version, driver.devices));
  };
  Driver driver;
  if (!ask_apart(kPatience, answer, tell) ||
      !(std::istringstream(answer) >> driver.is_there >> driver.init >> driver.version >> driver.devices))
    return std::nullopt;
  return driver;
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// CUDA's version that a libnccl was built with, as 13000: its file says "NCCL version 2.28.9+cuda13.0".
int cuda_of_nccl(const std::string& file, std::string& words) {
  constexpr std::string_view kVersion = "NCCL version ", kCuda = "+cuda";
  const std::string bytes = text_of(file);
  for (size_t at = bytes.find(kVersion); at != std::string::npos; at = bytes.find(kVersion, at + 1)) {
    const std::string_view text = std::string_view(bytes).substr(at + kVersion.size(), 32);
    const size_t cuda = text.find(kCuda);
    if (cuda == std::string_view::npos) continue;
    int major = 0, minor = 0;
    const char* end = text.data() + text.size();
    const auto [dot, wrong] = std::from_chars(text.data() + cuda + kCuda.size(), end, major);
    if (wrong != std::errc() || dot == end || *dot != '.') continue;
    const auto [rest, wrong_too] = std::from_chars(dot + 1, end, minor);
    if (wrong_too != std::errc()) continue;
    words = std::string(text.data(), rest);
    return major * 1000 + minor * 10;
  }
  return 0;
}

/// Where the loader has found it.
std::string file_of_nccl() {
  std::string file;
  ask_apart(kPatience, file, [](int to) {
    void* library = dlopen(nccl_library().c_str(), RTLD_LAZY | RTLD_LOCAL);
    void* symbol = library ? dlsym(library, "ncclGetVersion") : nullptr;
    Dl_info info{};
    if (symbol && dladdr(symbol, &info) != 0) write_all(to, info.dli_fname);
  });
  return file;
}

std::string cuda(int version) { return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10); }

void check_nccl(Findings& findings, const Driver& driver) {
  constexpr const char* kElsewhere = "/usr/local/cuda/lib64/libnccl.so.2";
  if (auto refused = refusal<nccl::Library>(dl::kCUDA)) {
    if (settings().nccl_library.empty() && std::filesystem::exists(kElsewhere))
      refused->fix = fmt::format("TUTTI_NCCL_LIBRARY={}, or {}", kElsewhere, refused->fix);
    return findings.push_back({"NCCL", Level::kWarning, refused->why + ": GPUs exchange data by way of the host", refused->fix});
  }
  const std::string file = file_of_nccl();
  std::string words;
  const int built_with = cuda_of_nccl(file, words);
  constexpr int kMajor = 1000;  // minor versions are compatible
  if (built_with / kMajor > driver.version / kMajor)
    findings.push_back({"NCCL", Level::kProblem,
                        fmt::format("{} is version {}, the driver knows {} at most: communicators can't be made", file, words,
                                    cuda(driver.version)),
                        fmt::format("a newer driver, or the NCCL for CUDA {}", driver.version / kMajor)});
  else
    findings.push_back(
        {"NCCL", Level::kOk,
         fmt::format("{}: {}; the driver knows {}", file, words.empty() ? "version not known" : words, cuda(driver.version)),
         ""});
}

void check_nvidia(Findings& findings, size_t gpus, size_t visible) {
  const auto answer = driver_here();
  const bool has_module = std::filesystem::exists("/proc/driver/nvidia/version"),
             has_device = std::filesystem::exists("/dev/nvidiactl");
  const std::string on_bus = fmt::format("{} NVIDIA {} on the bus", gpus, gpus == 1 ? "GPU" : "GPUs");
  if (!answer) return findings.push_back({"GPU driver", Level::kProblem, on_bus + ", but the driver does not answer", kReset});
  if (answer->is_there && answer->init == 0) {
    if (const auto refused = refusal<gpu::Driver>(dl::kCUDA))
      return findings.push_back({"GPU driver", Level::kProblem, on_bus + ", but " + refused->why, refused->fix});
    const bool all = static_cast<size_t>(answer->devices) >= visible;
    findings.push_back({"GPU driver", all ? Level::kOk : Level::kWarning,
                        fmt::format("{}, CUDA sees {}; the driver knows {}", on_bus, answer->devices, cuda(answer->version)),
                        all ? "" : "a container or batch system may have handed out those only; else nvidia-smi tells more"});
    return check_nccl(findings, *answer);
  }
  if (!has_module)
    return findings.push_back(
        {"GPU driver", Level::kProblem, on_bus + ", but no driver is loaded", "install NVIDIA's driver; modprobe nvidia"});
  if (!has_device || !answer->is_there)
    return findings.push_back(
        {"GPU driver", Level::kProblem,
         fmt::format("{}, but {}", on_bus, has_device ? cuda_library() + " is not here" : "/dev/nvidiactl is not here"),
         kAskForGpus});
  constexpr int kMismatch = 803;
  findings.push_back(
      {"GPU driver", Level::kProblem,
       fmt::format("{}, but cuInit fails with {}{}", on_bus, answer->init,
                   answer->init == kMismatch ? ": the loaded module and libcuda.so.1 have different versions" : ""),
       answer->init == kMismatch
           ? "the driver was updated: start the machine again, or remove another libcuda.so.1 from LD_LIBRARY_PATH"
           : "nvidia-smi tells more"});
}

void check_amd(Findings& findings) {
  if (access("/dev/kfd", R_OK | W_OK) != 0)
    return findings.push_back(
        {"GPU driver", Level::kProblem, "AMD GPUs on the bus, but /dev/kfd can't be opened",
         "modprobe amdgpu; be in groups render and video; in a container: --device /dev/kfd --device /dev/dri"});
  if (const auto refused = refusal<gpu::Driver>(dl::kROCM))  // a screen's GPU needs no ROCm
    return findings.push_back({"GPU driver", gpu::Driver::is_installed(dl::kROCM) ? Level::kProblem : Level::kWarning,
                               "AMD GPUs on the bus, but " + refused->why, refused->fix});
  if (const auto refused = refusal<nccl::Library>(dl::kROCM))
    findings.push_back({"RCCL", Level::kWarning, refused->why + ": GPUs exchange data by way of the host", refused->fix});
}

}  // namespace

void check_gpus(Findings& findings) {
  std::string answer;  // a driver in a bad state does not come back from its files, or from hwloc's use of it, either
  const auto look = [](int) {
    try {
      (void)topology::discover();
    } catch (const SystemError&) {  // told below
    } catch (const UsageError&) {
    }
  };
  if (!ask_apart(kPatience, answer, look))
    return findings.push_back(
        {"GPU driver", Level::kProblem, "NVIDIA's driver does not answer (cat /proc/driver/nvidia/gpus/*/information)", kReset});
  const topology::Node node = topology::discover();
  std::string idle;
  for (const topology::PciDevice& gpu : node.idle_gpus)
    idle += fmt::format("{}{}{}", idle.empty() ? "" : ", ", gpu.pci, gpu.vendor.empty() ? "" : " (" + gpu.vendor + ")");
  if (!idle.empty())
    findings.push_back({"GPU driver", node.gpus.empty() ? Level::kProblem : Level::kWarning,
                        "no driver to compute with is loaded for " + idle,
                        "install and load the vendor's driver (modprobe nvidia, modprobe amdgpu; not nouveau); a GPU kept for "
                        "virtual machines (vfio-pci) is well as it is"});
  if (node.gpus.empty()) return findings.push_back({"GPUs", Level::kOk, "none: collectives run on CPUs", ""});
  std::vector<std::string> notes;
  const auto visible = topology::visible_gpus(topology::this_process, node, notes);
  for (const std::string& note : notes)
    findings.push_back({"GPUs", Level::kWarning, note, "unset it, or name GPUs by UUID (nvidia-smi -L)"});
  std::string hidden_by;
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})
    if (const auto value = topology::this_process(name))
      hidden_by += fmt::format("{}{}='{}'", hidden_by.empty() ? "" : ", ", name, *value);
  if (const auto& known = topology::driver_gpus()) {
    const auto reachable = std::ranges::count_if(*known, &topology::DriverGpu::is_reachable);
    if (reachable == 0)
      return findings.push_back({"GPUs", Level::kWarning,
                                 fmt::format("none of {}: this container or batch job has not been given one", node.gpus.size()),
                                 kAskForGpus});
    if (static_cast<size_t>(reachable) < known->size())
      hidden_by +=
          fmt::format("{}a container or batch system leaves {} of {}", hidden_by.empty() ? "" : ", ", reachable, known->size());
  }
  const std::string text =
      fmt::format("{} of {} may be used{}", visible.size(), node.gpus.size(), hidden_by.empty() ? "" : ": " + hidden_by);
  if (visible.empty())
    findings.push_back({"GPUs", Level::kProblem, text, "unset that variable, or let it name GPUs that are here (tutti map)"});
  else findings.push_back({"GPUs", Level::kOk, text, ""});
  const auto is_nvidia = [](const topology::PciDevice& gpu) { return gpu.vendor == "nvidia"; };
  const auto are_visible =
      std::count_if(visible.begin(), visible.end(), [&](int gpu) { return is_nvidia(node.gpus[static_cast<size_t>(gpu)]); });
  if (const auto nvidia = std::count_if(node.gpus.begin(), node.gpus.end(), is_nvidia))
    check_nvidia(findings, static_cast<size_t>(nvidia), static_cast<size_t>(are_visible));
  if (std::ranges::any_of(node.gpus, [](const topology::PciDevice& gpu) { return gpu.vendor == "amd"; })) check_amd(findings);
}

}  // namespace tutti::launcher
