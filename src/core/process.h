#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <filesystem>

#include "core/handle.h"

namespace tutti::detail {

/// Changes in a child of fork(): costs a read, where getpid() is a system call.
uint32_t process_generation();
/// What it is read from, for those who look often: 0 in a child that has not asked yet.
const std::atomic<uint32_t>& generation_word();

/// The folder that the program was started in (Python: that `import tutti` was run in): relative paths of the environment mean
/// it.
const std::filesystem::path& start_folder();

/// Takes those of the descriptors 0 to 2 that are closed, so that MPI or another library gets none of them for its files. A read
/// or write of them fails as before; programs that this one starts find them closed.
void reserve_standard_streams() noexcept;

/// A descriptor that becomes readable when the process ends. Empty: errno says why (old kernels, some containers: ENOSYS, EPERM).
Fd open_pidfd(pid_t pid);

}  // namespace tutti::detail
