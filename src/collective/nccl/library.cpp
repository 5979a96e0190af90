#include "collective/nccl/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

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

Functions load(int32_t type, const std::string& path, int& version) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    const char* said = dlerror();
    refuse(vendor(type), path, fmt::format("can't be loaded: {}", said ? said : "?"));
  }
  const auto find = [&](const char* name) {
    void* address = dlsym(library, name);
    if (!address) refuse(vendor(type), path, fmt::format("has no {}: it is too old", name));
    return address;
  };
  if (auto* get_version = reinterpret_cast<Status (*)(int*)>(find("ncclGetVersion")); get_version(&version) != kSuccess)
    refuse(vendor(type), path, "does not say its version");
  if (version < kOldest) refuse(vendor(type), path, fmt::format("is version {}, expected 2.19 or later", to_string(version)));
  Functions f;
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

struct Found {
  const Library* library = nullptr;
  std::string why;
};

}  // namespace

const Library& Library::of(int32_t device_type) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::map<std::pair<int32_t, std::string>, Found>;
  const std::string& set = device_type == dl::kCUDA ? settings().nccl_library : settings().rccl_library;
  const std::string path = set.empty() ? vendor(device_type).library : set;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = all.try_emplace({device_type, path});
  Found& found = it->second;
  if (is_new) try {
      found.library = new Library(device_type, path);
    } catch (const SystemError& error) {
      found.why = error.what();
    }
  if (!found.library) throw SystemError(found.why);
  return *found.library;
}

Library::Library(int32_t device_type, const std::string& path)
    : functions(load(device_type, path, version_)), device_type_(device_type) {}

std::string_view Library::name() const { return vendor(device_type_).name; }

std::string Library::describe(std::string_view call, Status status, Comm comm) const {
  const char *text = functions.error_text(status), *last = functions.last_error(comm);
  return fmt::format("{} failed with {}{}{} ({} {})", call, text ? text : "?", last && *last ? ": " : "", last ? last : "",
                     name(), to_string(version_));
}

}  // namespace tutti::detail::nccl
