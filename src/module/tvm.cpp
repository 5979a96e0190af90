// Libraries that TVM has written: its own runtime loads them, and finds our collectives in its registry.
#include "module/tvm.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "control/worker/worker.h"
#include "core/builtins.h"
#include "core/log.h"
#include "core/settings.h"
#include "module/call.h"
#include "module/runtime.h"
#include "tutti/error.h"
#include "tutti/function.h"
#include "tutti/worker.h"

namespace tutti::ffi {
using namespace detail;
namespace {

namespace fs = std::filesystem;

constexpr const char *kFfi = "libtvm_ffi.so", *kRuntime = "libtvm_runtime.so";
/// Collectives with in_group, and its position: a compiled model has 0 or 1 there, where ours take a bool.
constexpr std::pair<std::string_view, size_t> kFlags[] = {
    {"allreduce", 2}, {"allgather", 1}, {"broadcast_from_worker0", 1}, {"scatter_from_worker0", 1}, {"gather_to_worker0", 1}};

std::mutex mutex;

/// Its other libraries find its names; itself it finds its own, not ours, which have the same ones. Sanitizers end a program that
/// asks for the latter.
void* open_shared(const fs::path& file) {
  const bool is_sanitized = dlsym(RTLD_DEFAULT, "__sanitizer_print_stack_trace") != nullptr;
  return dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE | (is_sanitized ? 0 : RTLD_DEEPBIND));
}

bool is_loaded(const char* name) {
  void* handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle) dlclose(handle);
  return handle != nullptr;
}

/// What lies beside the runtime, GPUs' parts among it; some of that can't be loaded here. Before ours is published: it registers
/// the same names, and a name that is there already ends the process.
void load_parts_beside(const fs::path& runtime) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(runtime.parent_path(), none))
    if (const std::string name = entry.path().filename(); name.starts_with("libtvm_runtime_") && name.ends_with(".so"))
      if (!open_shared(entry.path())) log(LogLevel::kInfo, "{} is not used: {}", name, dlerror());
}

/// In the folder of TVM's runtime; wheels have it in another package's.
bool load_ffi_beside(const fs::path& runtime) {
  if (is_loaded(kFfi)) return true;
  const fs::path folder = runtime.parent_path();
  if (folder.empty()) return false;
  return open_shared(folder / kFfi) || open_shared(folder / "../../tvm_ffi/lib" / kFfi);
}

/// In the package of this Python, if there is a Python.
std::string library_of_python(const char* package, const char* file) {
  const auto find = find_global_func("runtime.disco._library_of_tvm");
  return find ? (*find)(List{package, file}).as<std::string>() : "";
}

/// libtvm_ffi first, which the runtime needs.
bool load_from(const fs::path& runtime) {
  if (!runtime.has_parent_path()) return open_shared(runtime) != nullptr;  // the system looks for it
  if (std::error_code none; !fs::exists(runtime, none)) return false;
  load_ffi_beside(runtime);
  if (!open_shared(runtime)) {
    log(LogLevel::kWarn, "TVM's runtime can't be loaded: {}", dlerror());
    return false;
  }
  load_parts_beside(runtime);
  return true;
}

std::optional<size_t> flag_of(std::string_view function) {
  for (const auto& [name, position] : kFlags)
    if (function.substr(function.rfind('.') + 1) == name) return position;
  return std::nullopt;
}

Value call_ours(const Function& ours, std::optional<size_t> flag, Args args) {
  if (!flag || args.size() <= *flag) return ours(args);
  List converted(args.begin(), args.end());
  Value& value = converted[*flag];
  if (const auto* number = std::get_if<int64_t>(&value.data()); number && (*number == 0 || *number == 1)) value = *number == 1;
  return ours(converted);
}

void publish() {
  const std::string prefix = "runtime.disco.";
  for (const std::string& name : function_names(prefix)) {
    static auto& published = *new std::set<std::string>;
    if (name.starts_with(prefix + "_") || published.contains(name)) continue;  // those are between us and our Python
    const Function ours = get_global_func(name);
    const auto before = find_foreign_function(name);
    const Function other = before ? function_of(name, *before) : ours;
    const auto either = [ours, other, flag = flag_of(name)](Args args) {
      return worker::active() ? call_ours(ours, flag, args) : other(args);
    };
    set_foreign_function(name, make_box(Function(name, either, ours.options())));
    published.insert(name);
  }
}

}  // namespace

bool find_tvm(const std::string& path_of_module) {
  const std::lock_guard lock(mutex);
  static bool is_published = false;
  if (is_published) return true;
  const auto look_for_it = [&] {
    if (const std::string& told = settings().tvm_library; !told.empty()) return load_from(told);
    if (load_from(fs::path(path_of_module).parent_path() / kRuntime)) return true;
    if (const std::string found = library_of_python("tvm", kRuntime); !found.empty() && load_from(found)) return true;
    return load_from(kRuntime);
  };
  const bool is_here = is_loaded(kRuntime) || look_for_it();
  if (!is_here || !has_foreign_runtime()) return false;
  publish();
  return is_published = true;
}

bool find_libtvm_ffi(const std::string& path_of_module) {
  const std::lock_guard lock(mutex);
  if (is_loaded(kFfi)) return true;
  if (load_ffi_beside(settings().tvm_library)) return true;
  if (open_shared(fs::absolute(path_of_module).parent_path() / kFfi)) return true;
  if (const std::string found = library_of_python("tvm_ffi", kFfi); !found.empty() && open_shared(found)) return true;
  return open_shared(kFfi) != nullptr;
}

void bind_threads_of_tvm() try {
  static thread_local bool is_done = false;
  const Worker* worker = Worker::current();
  const char* binds = std::getenv("TVM_BIND_THREADS");
  if (!worker || std::exchange(is_done, true) || (binds && std::string_view(binds) == "0")) return;
  constexpr const char *kConfigure = "runtime.config_threadpool", *kCount = "runtime.NumThreads";
  constexpr int kShareCpus = -3;  // all threads may run on all of the CPUs that are named
  const auto configure = find_foreign_function(kConfigure), count = find_foreign_function(kCount);
  if (!configure || !count) return;
  List cpus;
  for (const int cpu : worker->cpus()) cpus.emplace_back(std::to_string(cpu));
  function_of(kConfigure, *configure)(List{kShareCpus, function_of(kCount, *count)({}), cpus});
} catch (const std::exception& error) {
  log(LogLevel::kWarn, "TVM's threads stay where TVM has put them: {}", error.what());
}

Value load_by_tvm(const std::string& path) {
  const std::string real = fs::canonical(path);
  struct stat status {};
  ::stat(real.c_str(), &status);
  const std::tuple file(real, status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  static std::recursive_mutex loading;                                              // what is loaded may load another
  static auto& loaded = *new std::map<std::remove_const_t<decltype(file)>, Value>;  // for the life of the process
  const std::lock_guard lock(loading);
  if (const auto known = loaded.find(file); known != loaded.end()) return known->second;
  constexpr const char* kLoad = "ffi.Module.load_from_file.so";  // whatever the file's name ends in
  const auto load = find_foreign_function(kLoad);
  if (!load) throw SystemError(fmt::format("libtvm_ffi has no {}; install apache-tvm-ffi 0.1.8 or newer", kLoad));
  const Value module = function_of(kLoad, *load)(List{real, "so"});
  log(LogLevel::kInfo, "TVM loaded module {}", real);
  return loaded.emplace(file, module).first->second;
}

}  // namespace tutti::ffi
