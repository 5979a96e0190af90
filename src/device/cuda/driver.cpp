#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string>

#include "core/env.h"
#include "core/settings.h"
#include "device/device_api.h"
#include "tutti/device.h"
#include "tutti/error.h"

namespace tutti::detail::gpu {
namespace {

struct Vendor {
  const char *what, *variable, *remedy, *visible;
  std::array<const char*, 4> libraries;  // the first one that is there
};
constexpr Vendor kNvidia{
    "CUDA driver",
    "TUTTI_CUDA_LIBRARY",
    "install NVIDIA's driver, 525 or later (nvidia-smi must list the GPU); in a container, start it with its "
    "GPUs (docker run --gpus all, apptainer exec --nv)",
    "CUDA_VISIBLE_DEVICES",
    {"libcuda.so.1"}};
constexpr Vendor kAmd{
    "HIP runtime",
    "TUTTI_HIP_LIBRARY",
    "install ROCm (rocminfo must list the GPU); in a container, pass /dev/kfd and /dev/dri to it",
    "HIP_VISIBLE_DEVICES",
    {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}};  // without a number: ROCm's -dev
const Vendor& vendor(int32_t type) { return type == dl::kCUDA ? kNvidia : kAmd; }

[[noreturn]] void refuse(const Vendor& vendor, const std::string& path, const std::string& why) {
  throw SystemError(
      fmt::format("no GPUs on {}: the {} ({}) {}; {}, or use cpu(0)", host_name(), vendor.what, path, why, vendor.remedy));
}

/// The first of its names that is there. Looked for once a process.
template <const Vendor& kVendor>
const std::string& library_of() {
  static const std::string found = [] {
    std::string why;
    for (const char* name : kVendor.libraries)
      if (name && open_library(name, why)) return name;
    return kVendor.libraries.front();
  }();
  return found;
}

const std::string& path_of(int32_t type) {
  const bool is_cuda = type == dl::kCUDA;
  const std::string& set = is_cuda ? settings().cuda_library : settings().hip_library;
  if (!set.empty()) return set;
  return is_cuda ? library_of<kNvidia>() : library_of<kAmd>();
}

/// Looks functions up in a library, each by its name.
class Library {
 public:
  Library(const Vendor& vendor, const std::string& path) : vendor_(vendor), path_(path) {
    std::string why;
    library_ = open_library(path, why);
    if (!library_) refuse(vendor, path, fmt::format("can't be loaded: {} ({} names another place)", why, vendor.variable));
    if (&vendor == &kAmd) return;
    get_ = reinterpret_cast<GetProcAddress>(dlsym(library_, "cuGetProcAddress_v2"));
    if (!get_) refuse(vendor, path, "is older than CUDA 12: it has no cuGetProcAddress_v2");
  }
  template <class... P>
  Function<P...> find(const char* name) const {
    void* address = nullptr;
    if (get_) {
      int found = 0;
      if (get_(name, &address, kCudaVersion, 0, &found) != kSuccess) address = nullptr;
    } else {
      address = dlsym(library_, name);
    }
    if (!address) refuse(vendor_, path_, fmt::format("has no {}: it is too old", name));
    return {name, reinterpret_cast<Status (*)(P...)>(address)};
  }

 private:
  const Vendor& vendor_;
  const std::string& path_;
  void* library_ = nullptr;
  GetProcAddress get_ = nullptr;
};

Functions load(int32_t type, const std::string& path) {
  const Library library(vendor(type), path);
  const bool is_cuda = type == dl::kCUDA;
  Functions f;
#define TUTTI_FUNCTION(field, cuda, hip, ...) f.field = library.find<__VA_ARGS__>(is_cuda ? #cuda : #hip);
#define TUTTI_CUDA_FUNCTION(field, cuda, ...) \
  if (is_cuda) f.field = library.find<__VA_ARGS__>(#cuda);
#define TUTTI_HIP_FUNCTION(field, hip, ...) \
  if (!is_cuda) f.field = library.find<__VA_ARGS__>(#hip);
#include "device/cuda/functions.def"
#undef TUTTI_FUNCTION
#undef TUTTI_CUDA_FUNCTION
#undef TUTTI_HIP_FUNCTION
  return f;
}

}  // namespace

const Driver& Driver::of(int32_t type) {
  static auto& of_nvidia = *new Libraries<Driver>;
  static auto& of_amd = *new Libraries<Driver>;
  return (type == dl::kCUDA ? of_nvidia : of_amd).get(path_of(type), [&](const std::string& path) {
    return new Driver(type, path);
  });
}

bool Driver::is_installed(int32_t type) {
  std::string why;
  return open_library(path_of(type), why) != nullptr;
}

Driver::Driver(int32_t type, const std::string& path) : functions(load(type, path)), type_(type) {
  const auto expect = [&](const char* call, Status status) {
    if (status == kSuccess) return;
    const char* visible = std::getenv(vendor(type).visible);
    refuse(vendor(type), path,
           fmt::format("says {} to {}{}", describe(status), call,
                       visible ? fmt::format(" ({}=\"{}\")", vendor(type).visible, visible) : ""));
  };
  int version = 0;  // 12040: 12.4
  expect(functions.driver_version.name, functions.driver_version.call(&version));
  if (type == dl::kCUDA && version < kCudaVersion)
    refuse(vendor(type), path, fmt::format("is for CUDA {}.{}, expected 12.0 or later", version / 1000, version % 1000 / 10));
  expect(functions.init.name, functions.init.call(0));
  expect(functions.device_count.name, functions.device_count.call(&device_count_));
  if (device_count_ == 0) expect(functions.device_count.name, kNoDevice);
}

std::string Driver::describe(Status status) const {
  const char *name = nullptr, *text = nullptr;
  functions.error_name.call(status, &name);
  functions.error_text.call(status, &text);
  return name ? fmt::format("{} ({})", name, text ? text : "?") : fmt::format("error {}", status);
}

void Driver::fail(int device, std::string_view call, Status status) const {
  const std::string what =
      fmt::format("{} on {}: {} failed with {}", to_string(Device{type_, device}), host_name(), call, describe(status));
  if (!is_sticky(status)) throw SystemError(what);
  throw DeviceLost(what + "; this process can't use the device any more: start the job again, and look for the cause with " +
                   (type_ == dl::kCUDA ? "compute-sanitizer" : "rocgdb"));
}

}  // namespace tutti::detail::gpu
