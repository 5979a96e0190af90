#pragma once

#include <cstdint>

namespace tutti {

/// Changes in a child of fork(): costs a read, where getpid() is a system call.
uint32_t process_generation();

}  // namespace tutti
