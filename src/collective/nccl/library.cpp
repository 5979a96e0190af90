#include "collective/nccl/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/env.h"
#include "core/settings.h"
#include "tutti/dlpack.h"
#include "tutti/error.h"

namespace tutti::detail::nccl {
namespace {

constexpr int kOldest = 21900;

struct Vendor {
  const char *name, *library, *variable, *remedy;
};
constexpr Vendor kNvidia{"NCCL", "libnccl.so.2", "TUTTI_NCCL_LIBRARY",
                         "install NCCL 2.19 or later (package libnccl2, or pip's nvidia-nccl-cu12)"};
constexpr Vendor kAmd{"RCCL", "librccl.so.1", "TUTTI_RCCL_LIBRARY", "install RCCL 2.19 or later (ROCm's package rccl)"};
const Vendor& vendor(int32_t type) { return type == dl::kCUDA ? kNvidia : kAmd; }

std::string to_string(int version) { return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100); }

[[noreturn]] void refuse(const Vendor& vendor, const std::string& path, const std::string& why) {
  throw SystemError(fmt::format("no {} on {}: {} {}; {} or say by {} where it is; ccl 'mpi' needs none", vendor.name, host_name(),
                                path, why, vendor.remedy, vendor.variable));
}

Functions load(int32_t type, const std::string& path) {
  std::string why;
  void* library = open_library(path, why);
  if (!library) refuse(vendor(type), path, "can't be loaded: " + why);
  const auto find = [&](const char* name) {
    void* address = dlsym(library, name);
    if (!address) refuse(vendor(type), path, fmt::format("has no {}: it is too old", name));
    return address;
  };
  Functions f;
  int& version = f.version;
  if (auto* get_version = reinterpret_cast<Status (*)(int*)>(find("ncclGetVersion")); get_version(&version) != kSuccess)
    refuse(vendor(type), path, "does not say its version");
  if (version < kOldest) refuse(vendor(type), path, fmt::format("is version {}, expected 2.19 or later", to_string(version)));
#define TUTTI_FUNCTION(field, name, ...) f.field = {#name, reinterpret_cast<Status (*)(__VA_ARGS__)>(find(#name))};
#define TUTTI_NEWER_FUNCTION(field, name, since, ...) \
  if (version >= since) f.field = {#name, reinterpret_cast<Status (*)(__VA_ARGS__)>(find(#name))};
#define TUTTI_TEXT_FUNCTION(field, name, ...) f.field = reinterpret_cast<const char* (*)(__VA_ARGS__)>(find(#name));
#include "collective/nccl/functions.def"
#undef TUTTI_FUNCTION
#undef TUTTI_NEWER_FUNCTION
#undef TUTTI_TEXT_FUNCTION
  return f;
}

/// NCCL reads this when it is first used.
void allow_shared_devices(int version) {
  if (version >= 23000) setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  else setenv("NCCL_HOSTID", fmt::format("{}-{}", host_name(), getpid()).c_str(), 0);  // each process takes others to be far away
}

}  // namespace

const Library& Library::of(int32_t device_type) {
  static auto& of_nvidia = *new Libraries<Library>;
  static auto& of_amd = *new Libraries<Library>;
  const bool is_cuda = device_type == dl::kCUDA;
  const std::string& set = is_cuda ? settings().nccl_library : settings().rccl_library;
  return (is_cuda ? of_nvidia : of_amd).get(set.empty() ? vendor(device_type).library : set, [&](const std::string& path) {
    return new Library(device_type, path);
  });
}

Library::Library(int32_t device_type, const std::string& path) : functions(load(device_type, path)), device_type_(device_type) {
  if (settings().allow_shared_device) allow_shared_devices(functions.version);
}

std::string_view Library::name() const { return vendor(device_type_).name; }

std::string Library::describe(std::string_view call, Status status, Comm comm) const {
  const char *text = functions.error_text(status), *last = functions.last_error(comm);
  return fmt::format("{} failed with {}{}{} ({} {})", call, text ? text : "?", last && *last ? ": " : "", last ? last : "",
                     name(), to_string(functions.version));
}

}  // namespace tutti::detail::nccl
