#include "module/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "core/demangle.h"
#include "core/env.h"
#include "core/log.h"
#include "core/printable.h"
#include "core/type_name.h"
#include "module/call.h"
#include "module/check.h"
#include "module/elf.h"
#include "module/runtime.h"

namespace tutti::ffi {
using namespace detail;
namespace {

constexpr const char* kNeedsTvm =
    "it needs TVM's runtime: install apache-tvm for the Python of every rank, or set TUTTI_TVM_LIBRARY to its libtvm_runtime.so";

constexpr const char* kLibtvmFfi = "libtvm_ffi.so";

struct Signature {
  dev_t device;
  ino_t inode;
  off_t size;
  int64_t changed_ns;
  bool operator==(const Signature&) const = default;
};

Signature signature_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) throw UsageError(fmt::format("{} on {}: {}", path, host_name(), std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) throw UsageError(fmt::format("{} on {} is not a file", path, host_name()));
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

std::string real_path(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    throw UsageError(fmt::format("the path {} has a zero byte, which no name of a file has", path));
  std::error_code error, ignored;
  std::string real = std::filesystem::canonical(path, error);
  if (error)
    throw UsageError(fmt::format("{} on {}: {} (working directory {})", path, host_name(), error.message(),
                                 std::filesystem::current_path(ignored).string()));
  return real;
}

std::vector<std::byte> read_library(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const size_t size = file ? static_cast<size_t>(file.tellg()) : 0;
  std::vector<std::byte> bytes;
  const auto read = [&](size_t count) {
    bytes.resize(count);
    if (!file.seekg(0) || !file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(count)))
      throw UsageError(fmt::format("{} on {} can't be read: {}", path, host_name(), std::strerror(errno)));
  };
  read(std::min(size, kElfHeaderBytes));  // what is no library may be of any size
  check_header(bytes, path);
  read(size);
  return bytes;
}

/// A copy that can be mapped executable, or nothing where the system forbids that.
Fd executable_copy(const std::vector<std::byte>& bytes, const std::string& name) {
  Fd fd(memfd_create(name.c_str(), MFD_CLOEXEC));
  for (size_t done = 0; fd && done < bytes.size();) {
    const ssize_t n = write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno != EINTR) throw SystemError(fmt::format("a copy of {}: {}", name, std::strerror(errno)));
    if (n > 0) done += static_cast<size_t>(n);
  }
  void* probe = fd ? mmap(nullptr, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd.get(), 0) : MAP_FAILED;
  if (probe == MAP_FAILED) return {};
  munmap(probe, 1);
  return fd;
}

/// $ORIGIN means the folder of the file; the loader would take that of our copy. Libraries found there are loaded first.
void load_neighbours(const ElfInfo& info, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  for (std::string search : info.run_path) {
    bool has_origin = false;
    for (const char* origin : {"${ORIGIN}", "$ORIGIN"})
      for (size_t at; (at = search.find(origin)) != std::string::npos; has_origin = true)
        search.replace(at, std::strlen(origin), folder);
    if (!has_origin) continue;
    for (const std::string& name : info.needed)
      if (const auto file = std::filesystem::path(search) / name; access(file.c_str(), R_OK) == 0)
        dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

/// Modules find the functions of tutti/abi.h in the program's scope, also where we came in as somebody's private dependency.
void make_ourselves_visible() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&make_ourselves_visible), &info) && info.dli_fname)
    if (void* self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL)) dlclose(self);
}

std::string explain(std::string why) {
  if (why.find("undefined symbol: TVMFFI") != std::string::npos)
    return why + "; libtvm_ffi has it: install apache-tvm-ffi for the Python of every rank, and link the library with it";
  for (const char* sign : {"libtvm", "undefined symbol: TVM", "undefined symbol: _ZN3tvm", "undefined symbol: _ZNK3tvm"})
    if (why.find(sign) != std::string::npos) return why + "; " + kNeedsTvm;
  return why;
}

}  // namespace

Library::Needs Library::needs_of(const std::string& path) {
  static std::mutex mutex;  // one reads the file
  static auto& known = *new std::map<std::string, std::pair<Signature, Needs>>;
  const std::string real = real_path(path);
  const Signature signature = signature_of(real);
  const std::lock_guard lock(mutex);
  if (const auto it = known.find(real); it != known.end() && it->second.first == signature) return it->second.second;
  std::vector<std::byte> image = read_library(real);
  const ElfInfo info = take_constructors(image, real);
  const Needs needs{info.carries_modules, std::ranges::find(info.needed, kLibtvmFfi) != info.needed.end()};
  known[real] = {signature, needs};
  return needs;
}

namespace {

struct Opened {
  std::mutex mutex;
  std::set<void*> libraries;
};
Opened& opened() {
  static auto& one = *new Opened;  // for the life of the process
  return one;
}

}  // namespace

Library* Library::find(void* context) {
  const std::lock_guard lock(opened().mutex);
  return opened().libraries.contains(context) ? static_cast<Library*>(context) : nullptr;
}

Library::Library(std::string path) : path_(std::move(path)) {
  const std::lock_guard lock(opened().mutex);
  opened().libraries.insert(this);
}
Library::~Library() {
  const std::lock_guard lock(opened().mutex);
  opened().libraries.erase(this);
}

Library& Library::open(const std::string& path) {
  struct Loaded {
    std::string path;
    Signature signature;
    Library* library;
  };
  static std::recursive_mutex mutex;               // a constructor may load another module
  static auto& loaded = *new std::vector<Loaded>;  // for the life of the process
  std::lock_guard lock(mutex);
  const std::string real = real_path(path);
  const Signature signature = signature_of(real);
  for (const Loaded& known : loaded)
    if (known.path == real && known.signature == signature) return *known.library;
  std::unique_ptr<Library> library(new Library(real));
  library->load();
  log(LogLevel::kInfo, "loaded module {}", real);
  loaded.push_back({real, signature, library.get()});
  return *library.release();
}

void Library::load() {
  std::vector<std::byte> image = read_library(path_);
  const ElfInfo info = take_constructors(image, path_);
  make_ourselves_visible();
  load_neighbours(info, path_);
  std::string name, why;
  const auto open = [&] {
    image_ = executable_copy(image, std::filesystem::path(path_).filename());
    name = image_ ? fmt::format("/proc/{}/fd/{}", getpid(), image_.get()) : path_;
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) why = dlerror();
  };
  open();
  if (!handle_ && image_ && why.starts_with(fmt::format("{}:", kLibtvmFfi))) {
    take_constructors(image, path_, kLibtvmFfi);  // ours have the same names
    open();
  }
  if (!handle_) {
    if (size_t at = why.find(name); at == 0) why.erase(0, name.size() + std::min<size_t>(2, why.size() - name.size()));
    throw SystemError(fmt::format("{} on {} can't be loaded: {}", path_, host_name(), explain(why)));
  }
  try {
    links_libtvm_ffi_ = brings_foreign_runtime(handle_);
    adopt_foreign_runtime(handle_);
    fill_in_context();
    if (image_) run_constructors(info.init_array, info.init_array_count);
  } catch (...) {
    dlclose(std::exchange(handle_, nullptr));  // runs the destructors of what was constructed
    // a library that stays nevertheless keeps its name: the number must not be used again
    if (void* stays = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD)) dlclose(stays), (void)image_.release();
    throw;
  }
}

void Library::fill_in_context() {
  for (const ContextSymbol& context : context_symbols())
    if (auto** variable = static_cast<void**>(symbol(context.name))) *variable = context.address;
  if (auto** context = static_cast<void**>(symbol("__tvm_ffi__library_ctx"))) *context = this;
  bool lacks_runtime = symbol("__tvm_ffi__library_bin") != nullptr;
  for (const char* name : {"__TVMBackendGetFuncFromEnv", "__TVMBackendAllocWorkspace", "__TVMBackendFreeWorkspace",
                           "__TVMBackendParallelLaunch", "__TVMBackendParallelBarrier"})
    if (auto** variable = static_cast<void**>(symbol(name))) lacks_runtime |= *variable == nullptr;
  if (lacks_runtime) throw NeedsTvm(fmt::format("{} on {} can't be used: {}", path_, host_name(), kNeedsTvm));
}

void Library::run_constructors(uint64_t first, uint64_t count) {
  link_map* map = nullptr;
  if (count == 0 || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return;
  const auto* constructors = reinterpret_cast<void (*const*)(int, char**, char**)>(map->l_addr + first);
  // in our words: the exception's type goes with the library
  std::string kind = "unknown exception", message;
  static char* no_arguments[] = {nullptr};
  try {
    for (uint64_t i = 0; i < count; ++i) constructors[i](0, no_arguments, environ);
    return;
  } catch (const std::exception& error) {
    kind = demangled(typeid(error).name());
    message = what_of(error);
  } catch (...) {
    message = "not a std::exception";
  }
  throw ModuleError(kind, fmt::format("{} on {}: a constructor threw: {}", path_, host_name(), message), {});
}

void* Library::symbol(const std::string& name) const {
  if (name.find('\0') != std::string::npos) return nullptr;  // dlsym would see the part before it
  void* found = dlsym(handle_, name.c_str());
  Dl_info info{};
  link_map* map = nullptr;  // of this library only: dlsym also looks into what it links
  if (!found || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || !dladdr(found, &info)) return nullptr;
  return reinterpret_cast<uintptr_t>(info.dli_fbase) == map->l_addr ? found : nullptr;
}

std::vector<std::string> Library::functions() const {
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return {};
  std::vector<std::string> names;
  for (const std::string& name : exported_functions(map->l_ld))
    if (const std::string_view prefix = "__tvm_ffi_"; name.starts_with(prefix) && !name.starts_with("__tvm_ffi__"))
      names.push_back(name.substr(prefix.size()));
  std::ranges::sort(names);
  return names;
}

std::optional<Function> Library::function(const std::string& name, const ObjectRef& self) {
  void* found = symbol("__tvm_ffi_" + name);
  if (!found) return std::nullopt;
  if (!is_code(found)) throw UsageError(fmt::format("__tvm_ffi_{} in {} is not a function", name, path_));
  const auto call = reinterpret_cast<TVMFFISafeCallType>(found);
  return Function(name, [name, call, self](Args args) { return call_c(name, call, self.get(), args); }, {});
}

TVMFFIObject* Library::lookup(const std::string& name) {
  std::lock_guard lock(mutex_);
  ObjectRef& known = looked_up_[name];
  if (known) return known.get();
  if (auto own = function(name)) known = make_box(*own);
  else if (auto global = find_global_func(name)) known = make_box(*global);
  else if (auto foreign = find_foreign_function(name)) known = *foreign;
  else
    throw UsageError(fmt::format("{} asks for a function '{}', which neither it nor the registry has", path_, printable(name)));
  return known.get();
}

}  // namespace tutti::ffi
