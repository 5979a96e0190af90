#pragma once

#include <string>

#include "tutti/value.h"

namespace tutti::ffi {

/// Whether TVM's runtime is in this process. Else it is looked for: by TUTTI_TVM_LIBRARY, beside the module, in the package tvm
/// of this Python, where the system looks for libraries. Once it is here, its registry has our runtime.disco.* functions, which
/// compiled models call: ours on workers' threads, on others what was there before.
bool find_tvm(const std::string& path_of_module);

/// The same for libtvm_ffi alone, which libraries need that were built with its headers and linked with it.
bool find_libtvm_ffi(const std::string& path_of_module);

/// The module object of a library, made by TVM's loader: one for a process and file.
/// @throws ModuleError  what TVM says
Value load_by_tvm(const std::string& path);

/// TVM's first parallel kernel binds its threads, the caller's too, to the first cores of the machine: those of other workers.
/// After this they share the CPUs that this worker has. Each worker calls it; TVM_BIND_THREADS=0 does without.
void bind_threads_of_tvm();

}  // namespace tutti::ffi
