// Is what a module hands over what it claims to be? A module must not be able to crash the program by what it returns.
#pragma once

#include <string>

#include "tutti/abi.h"

namespace tutti::ffi {

/// Whether all bytes can be read; for more than two pages, whether the first and the last page can.
bool is_readable(const void* begin, size_t size_bytes);
/// Whether the address lies in executable memory.
bool is_code(const void* address);

/// What is wrong with an owned value of a module, or an empty string: an unknown type index, an object pointer that is null,
/// unreadable or claims another type, counts or sizes that can't be, content that can't be read. Freed memory that is still
/// mapped can't be told from live memory.
std::string why_not_valid(const TVMFFIAny& value);
std::string why_not_tensor(const DLTensor& tensor);

}  // namespace tutti::ffi
