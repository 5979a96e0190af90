#include "module/runtime.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <atomic>
#include <mutex>
#include <string_view>

#include "core/log.h"
#include "tutti/error.h"

namespace tutti::ffi {
using namespace detail;
namespace {

/// What holds state and must therefore be one for the process.
struct Foreign {
  void* library;  ///< of dlopen
  decltype(&TVMFFIErrorSetRaised) set_raised;
  decltype(&TVMFFIErrorMoveFromRaised) move_from_raised;
  decltype(&TVMFFIFunctionGetGlobal) get_global;
  decltype(&TVMFFIFunctionSetGlobal) set_global;  // this and what follows: null in a small one
  decltype(&TVMFFIEnvModLookupFromImports) look_up;
  decltype(&TVMFFIEnvModRegisterContextSymbol) register_symbol;
};
std::atomic<const Foreign*> adopted{nullptr};

thread_local ObjectRef raised;

std::mutex symbols_mutex;
std::vector<ContextSymbol>& registered_symbols() {
  static auto* symbols = new std::vector<ContextSymbol>;
  return *symbols;
}

struct Sought {
  unsigned long long loads = 0;  ///< libraries that this process has loaded so far
  std::string path;              ///< of libtvm_ffi; empty: it is not among them
};

template <class F>
F find(void* library, const char* name, F ours) {
  auto found = reinterpret_cast<F>(dlsym(library, name));
  return found == ours ? nullptr : found;
}

void adopt(void* library) {
  if (adopted.load()) return;
  Foreign found{library,
                find(library, "TVMFFIErrorSetRaised", &TVMFFIErrorSetRaised),
                find(library, "TVMFFIErrorMoveFromRaised", &TVMFFIErrorMoveFromRaised),
                find(library, "TVMFFIFunctionGetGlobal", &TVMFFIFunctionGetGlobal),
                find(library, "TVMFFIFunctionSetGlobal", &TVMFFIFunctionSetGlobal),
                find(library, "TVMFFIEnvModLookupFromImports", &TVMFFIEnvModLookupFromImports),
                find(library, "TVMFFIEnvModRegisterContextSymbol", &TVMFFIEnvModRegisterContextSymbol)};
  if (!found.set_raised || !found.move_from_raised || !found.get_global) return;
  // itself: what has brought it may go again
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(found.set_raised), &info) || !info.dli_fname) return;
  found.library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (!found.library) return;
  const Foreign* none = nullptr;
  const auto* made = new Foreign(found);  // for the life of the process
  if (!adopted.compare_exchange_strong(none, made)) return delete made;
  const auto allocator =
      find(made->library, "TVMFFIEnvGetDLPackManagedTensorAllocator", &TVMFFIEnvGetDLPackManagedTensorAllocator);
  const auto set_allocator =
      find(made->library, "TVMFFIEnvSetDLPackManagedTensorAllocator", &TVMFFIEnvSetDLPackManagedTensorAllocator);
  if (allocator && set_allocator) {
    TVMFFITensorAllocator of_this_thread = nullptr;
    set_allocator(nullptr, 0, &of_this_thread);
    if (!allocator()) set_allocator(&allocate_tensor, 1, nullptr);
    set_allocator(of_this_thread, 0, nullptr);
  }
  log(LogLevel::kInfo, "modules use libtvm_ffi from now on");
}

/// A program may bring libtvm_ffi at any time, and what it loads then may find our functions in the place of that one's. Asked
/// for at each use: without a look at the file system, and at the libraries only if there are new ones.
const Foreign* foreign() {
  if (const Foreign* known = adopted.load()) return known;
  static std::atomic<unsigned long long> looked_at{0};
  Sought sought;
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        auto& s = *static_cast<Sought*>(data);
        s.loads = library->dlpi_adds;
        if (s.loads == looked_at.load(std::memory_order_relaxed)) return 1;
        const std::string_view name = library->dlpi_name ? library->dlpi_name : "";
        if (name.ends_with("/libtvm_ffi.so")) s.path = name;
        return s.path.empty() ? 0 : 1;
      },
      &sought);
  if (sought.path.empty()) {
    looked_at.store(sought.loads, std::memory_order_relaxed);
    return nullptr;
  }
  if (void* library = dlopen(sought.path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) adopt(library);
  return adopted.load();
}

}  // namespace

void set_raised(ObjectRef error) {
  raised = {};
  if (const Foreign* f = foreign()) f->set_raised(error.get());  // adds its own reference
  else raised = std::move(error);
}

ObjectRef move_from_raised() {
  if (raised) return std::move(raised);  // of before
  if (const Foreign* f = foreign()) {
    TVMFFIObjectHandle error = nullptr;
    f->move_from_raised(&error);
    return ObjectRef::steal(static_cast<TVMFFIObject*>(error));
  }
  return std::move(raised);
}

void* function_of_libtvm_ffi(const char* name, const void* ours, std::atomic<void*>& known) {
  if (void* function = known.load(std::memory_order_acquire)) return function;
  const Foreign* f = foreign();
  void* const found = f ? dlsym(f->library, name) : nullptr;
  if (!found || found == ours) return nullptr;
  known.store(found, std::memory_order_release);
  return found;
}

bool brings_foreign_runtime(void* library) { return find(library, "TVMFFIErrorSetRaised", &TVMFFIErrorSetRaised) != nullptr; }

bool has_foreign_runtime() { return foreign() != nullptr; }

std::optional<ObjectRef> find_foreign_function(const std::string& name) {
  const Foreign* f = foreign();
  TVMFFIObjectHandle function = nullptr;
  const TVMFFIByteArray bytes{name.data(), name.size()};
  if (!f || f->get_global(&bytes, &function) != 0 || !function) return std::nullopt;
  return ObjectRef::steal(static_cast<TVMFFIObject*>(function));
}

void set_foreign_function(const std::string& name, const ObjectRef& function) {
  const Foreign* f = foreign();
  const TVMFFIByteArray bytes{name.data(), name.size()};
  if (f && f->set_global && f->set_global(&bytes, function.get(), 1) != 0) {
    move_from_raised();
    throw SystemError(fmt::format("libtvm_ffi refuses a function named {}", name));
  }
}

void adopt_foreign_runtime(void* library) {
  adopt(library);
  foreign();
}

std::vector<ContextSymbol> context_symbols() {
  std::vector<ContextSymbol> symbols;
#define TUTTI_SYMBOL(name) symbols.push_back({"__" #name, reinterpret_cast<void*>(&(name))})
  TUTTI_SYMBOL(TVMFFIObjectIncRef);
  TUTTI_SYMBOL(TVMFFIObjectDecRef);
  TUTTI_SYMBOL(TVMFFIObjectCreateOpaque);
  TUTTI_SYMBOL(TVMFFIAnyViewToOwnedAny);
  TUTTI_SYMBOL(TVMFFIFunctionCreate);
  TUTTI_SYMBOL(TVMFFIFunctionGetGlobal);
  TUTTI_SYMBOL(TVMFFIFunctionSetGlobal);
  TUTTI_SYMBOL(TVMFFIFunctionCall);
  TUTTI_SYMBOL(TVMFFIErrorSetRaised);
  TUTTI_SYMBOL(TVMFFIErrorSetRaisedFromCStr);
  TUTTI_SYMBOL(TVMFFIErrorSetRaisedFromCStrParts);
  TUTTI_SYMBOL(TVMFFIErrorMoveFromRaised);
  TUTTI_SYMBOL(TVMFFIErrorCreate);
  TUTTI_SYMBOL(TVMFFIErrorCreateWithCauseAndExtraContext);
  TUTTI_SYMBOL(TVMFFIBacktrace);
  TUTTI_SYMBOL(TVMFFIGetVersion);
  TUTTI_SYMBOL(TVMFFITypeKeyToIndex);
  TUTTI_SYMBOL(TVMFFITypeGetOrAllocIndex);
  TUTTI_SYMBOL(TVMFFIGetTypeInfo);
  TUTTI_SYMBOL(TVMFFIHandleInitOnce);
  TUTTI_SYMBOL(TVMFFIHandleDeinitOnce);
  TUTTI_SYMBOL(TVMFFITensorFromDLPack);
  TUTTI_SYMBOL(TVMFFITensorFromDLPackVersioned);
  TUTTI_SYMBOL(TVMFFITensorToDLPack);
  TUTTI_SYMBOL(TVMFFITensorToDLPackVersioned);
  TUTTI_SYMBOL(TVMFFITensorCreateUnsafeView);
  TUTTI_SYMBOL(TVMFFIStringFromByteArray);
  TUTTI_SYMBOL(TVMFFIBytesFromByteArray);
  TUTTI_SYMBOL(TVMFFIDataTypeFromString);
  TUTTI_SYMBOL(TVMFFIDataTypeToString);
  TUTTI_SYMBOL(TVMFFIEnvTensorAlloc);
  TUTTI_SYMBOL(TVMFFIEnvSetStream);
  TUTTI_SYMBOL(TVMFFIEnvGetStream);
  TUTTI_SYMBOL(TVMFFIEnvModLookupFromImports);
  TUTTI_SYMBOL(TVMFFIEnvModRegisterContextSymbol);
#undef TUTTI_SYMBOL
  std::lock_guard lock(symbols_mutex);
  symbols.insert(symbols.end(), registered_symbols().begin(), registered_symbols().end());
  return symbols;
}

int look_up_for_foreign(void* library, const char* name, TVMFFIObjectHandle* out) {
  const Foreign* f = foreign();
  if (!f || !f->look_up) throw UsageError("TVMFFIEnvModLookupFromImports: the context is none of a library's");
  return f->look_up(library, name, out);
}

void register_context_symbol(std::string name, void* address) {
  if (const Foreign* f = foreign(); f && f->register_symbol) f->register_symbol(name.c_str(), address);
  std::lock_guard lock(symbols_mutex);
  registered_symbols().push_back({std::move(name), address});
}

}  // namespace tutti::ffi
