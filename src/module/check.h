// Is what a module hands over what it claims to be? A module must not be able to crash the program by what it returns.
#pragma once

#include <optional>
#include <string>

#include "tutti/abi.h"

namespace tutti::ffi {

/// Whether all bytes can be read; 0.1 us a page.
bool is_readable(const void* begin, size_t size_bytes);
bool is_readable_array(const void* begin, size_t size_bytes);  ///< and aligned for pointers and 64-bit numbers
bool is_object(const TVMFFIObject* object);                    ///< whether a header may lie there
/// The length of a C string, or nothing where its end can't be read.
std::optional<size_t> readable_length(const char* text);
/// Whether the address lies in executable memory.
bool is_code(const void* address);

/// What is wrong with an owned value of a module, or an empty string: an unknown type index, an object pointer that is null,
/// unreadable or claims another type, counts or sizes that can't be, content that can't be read. Freed memory that is still
/// mapped can't be told from live memory.
std::string why_not_valid(const TVMFFIAny& value);
std::string why_not_tensor(const DLTensor& tensor);

}  // namespace tutti::ffi
