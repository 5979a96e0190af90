// The state behind the C calling convention: raised errors, global functions. Ours, or that of libtvm_ffi once a module has
// brought it into the process.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "module/object.h"

namespace tutti::ffi {

void set_raised(ObjectRef error);
ObjectRef move_from_raised();  ///< empty if none

/// A global function of libtvm_ffi's registry, if it is here and has it.
std::optional<ObjectRef> find_foreign_function(const std::string& name);
bool has_foreign_runtime();
bool brings_foreign_runtime(void* library);  ///< of dlopen: what it links is libtvm_ffi
/// Whatever was there before goes.  @throws SystemError  it refuses
void set_foreign_function(const std::string& name, const ObjectRef& function);

/// libtvm_ffi's function of that name, once it is in the process; else null. `ours`: our own, which is none. `known`: kept for
/// the next time.
void* function_of_libtvm_ffi(const char* name, const void* ours, std::atomic<void*>& known);
/// At the beginning of a C function: calls libtvm_ffi's, and returns what that returns, once it is in the process.
#define TUTTI_BY_LIBTVM_FFI(function, ...)                                                                                  \
  do {                                                                                                                      \
    static std::atomic<void*> known_function{nullptr};                                                                      \
    if (void* theirs = tutti::ffi::function_of_libtvm_ffi(#function, reinterpret_cast<void*>(&(function)), known_function)) \
      return reinterpret_cast<decltype(&(function))>(theirs)(__VA_ARGS__);                                                  \
  } while (false)

/// What libtvm_ffi asks for tensors that functions allocate, unless somebody has told it of another allocator: dlpack.cpp.
int allocate_tensor(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_ctx,
                    void (*set_error)(void* error_ctx, const char* kind, const char* message));

/// Looks for libtvm_ffi in what `library` (a handle of dlopen; null: the program) has brought, and in what the program has.
void adopt_foreign_runtime(void* library);

/// The functions of tutti/abi.h: name and address, for the variables of compiled kernels; and those that were registered.
struct ContextSymbol {
  std::string name;
  void* address;
};
std::vector<ContextSymbol> context_symbols();
/// Of a library that libtvm_ffi has loaded.
int look_up_for_foreign(void* library, const char* name, TVMFFIObjectHandle* out);
void register_context_symbol(std::string name, void* address);

}  // namespace tutti::ffi
