// Modules on a worker, and the functions behind Session::load_vm_module and DModule.
#include <fmt/format.h>

#include <filesystem>

#include "control/worker/functions_above.h"
#include "core/builtins.h"
#include "core/printable.h"
#include "module/call.h"
#include "module/library.h"
#include "module/loaded.h"
#include "module/runtime.h"
#include "module/tvm.h"
#include "tutti/function.h"
#include "tutti/worker.h"

namespace tutti::ffi {
using namespace detail;
namespace {

const ObjectRef* object_in(const Value& value) { return opaque_cast<ObjectRef>(value); }

/// `imports`: what a module of TVM's has imported counts, too.
std::optional<Function> find_function(const Module& module, const std::string& name, bool imports = true) {
  if (module.object.is_none()) return module.library->function(name);
  const ObjectRef& object = *object_in(module.object);
  const bool is_of_tvm = !module.library || module.library->links_libtvm_ffi();
  if (is_of_tvm && object.get()->type_index == kTVMFFIModule && has_foreign_runtime()) {
    auto get = find_foreign_function("ffi.ModuleGetFunction");
    if (!get) throw UsageError("libtvm_ffi has no ffi.ModuleGetFunction");
    const Value found = function_of("ffi.ModuleGetFunction", *get)(List{module.object, name, imports});
    if (found.is_none()) return std::nullopt;
    return Function(name, [function = found.as<Function>()](Args args) { return function(args); }, {});
  }
  if (!module.library) throw UsageError(fmt::format("{}: its vm_load_executable made no module", module.path));
  return module.library->function(name, object);
}

Function get_function(const Module& module, const std::string& name) {
  if (auto found = find_function(module, name)) return *found;
  const std::string shown = printable(name);
  if (!module.library) throw UsageError(fmt::format("{} has no function '{}'", module.path, shown));
  throw UsageError(fmt::format("{} has no function '{}' (no symbol __tvm_ffi_{})", module.path, shown, shown));
}

Module open_module(const std::string& path) {
  const Library::Needs needs = Library::needs_of(path);
  if (needs.tvm && find_tvm(path)) return {nullptr, path, load_by_tvm(path)};
  if (needs.libtvm_ffi) find_libtvm_ffi(path);
  try {
    Library& library = Library::open(path);
    return {&library, library.path(), {}};
  } catch (const NeedsTvm&) {
    if (!find_tvm(path)) throw;
    return {nullptr, path, load_by_tvm(path)};
  }
}

Value load_vm_module(const std::string& path, const Value& device_or_none) {
  const Device device = device_or_none.is_none() ? worker::device() : device_or_none.as<Device>();
  Module module = open_module(path);
  if (!module.library) bind_threads_of_tvm();
  if (auto load = find_function(module, "vm_load_executable", false)) {
    module.object = (*load)({});
    if (!object_in(module.object))
      throw UsageError(fmt::format("vm_load_executable of {} returned {}, expected an object", path, to_string(module.object)));
    auto initialize = find_function(module, "vm_initialization");
    if (!initialize) throw UsageError(fmt::format("{} has vm_load_executable but no vm_initialization", path));
    constexpr int kPooled = 2;  // TVM's allocator type
    (*initialize)(List{device.type, device.id, kPooled, static_cast<int>(dl::kCPU), 0, kPooled});
  }
  return make_opaque(std::move(module), "module " + std::filesystem::path(path).filename().string());
}

std::optional<Function> find_in_foreign_registry(const std::string& name) {
  const auto found = find_foreign_function(name);
  return found ? std::optional(function_of(name, *found)) : std::nullopt;
}

Value module_get_function(const Value& module, const std::string& name) {
  if (auto* ours = opaque_cast<Module>(module)) return get_function(*ours, name);
  throw UsageError(fmt::format("['{}'] of {}, expected a module", printable(name), to_string(module)));
}

/// Of a library; an object that vm_load_executable made does not say.
Value module_functions(const Value& module) {
  List names;
  if (auto* ours = opaque_cast<Module>(module); ours && ours->object.is_none())
    for (std::string& name : ours->library->functions()) names.emplace_back(std::move(name));
  return names;
}

}  // namespace
}  // namespace tutti::ffi

void tutti::detail::register_module_functions() {
  look_further(ffi::find_in_foreign_registry);
  register_global_func("runtime.disco.load_vm_module", ffi::load_vm_module, {.override_existing = true});
  register_global_func("runtime.disco._adopt_tvm", [] { return ffi::find_tvm(""); }, {.override_existing = true});
  register_global_func("runtime.disco.module_get_function", ffi::module_get_function, {.override_existing = true});
  register_global_func("runtime.disco.module_functions", ffi::module_functions, {.override_existing = true});
}
