// A file that claims to be a shared library.
#include <cstring>
#include <vector>

#include "module/elf.h"
#include "tutti/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> image(size);
  if (size > 0) std::memcpy(image.data(), data, size);
  if (size > 20)
    std::memcpy(image.data(),
                "\x7f"
                "ELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0",
                20);  // past the first checks
  try {
    tutti::ffi::take_constructors(image, "fuzz", "libc.so.6");
  } catch (const tutti::UsageError&) {
  }
  return 0;
}
