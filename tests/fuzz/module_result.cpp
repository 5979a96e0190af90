// What a module returns: bytes become a value and objects in a page of memory, with pointers into it, past it, or anywhere.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "module/call.h"
#include "module/check.h"

namespace {

constexpr size_t kPage = 4096;

/// A page, and one behind it that can't be read. Not of the program: its neighbours are none of AddressSanitizer's business.
std::byte* new_page() {
  auto* two = static_cast<std::byte*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(two + kPage, kPage, PROT_NONE);
  return two;
}

std::byte* page() {
  static std::byte* memory = new_page();
  return memory;
}

/// A function that does nothing, in a page of its own.
std::byte* no_deleter() {
  static std::byte* code = [] {
    std::byte* memory = new_page();
#if defined(__x86_64__)
    constexpr uint32_t kReturn = 0xc3;
#else
    constexpr uint32_t kReturn = 0xd65f03c0;  // aarch64
#endif
    std::memcpy(memory, &kReturn, sizeof kReturn);
    mprotect(memory, kPage, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(reinterpret_cast<char*>(memory), reinterpret_cast<char*>(memory + sizeof kReturn));
    return memory;
  }();
  return code;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 24) return 0;
  std::byte* memory = page();
  std::memset(memory, 0, kPage);
  TVMFFIAny any;
  std::memcpy(&any, data, sizeof any);
  const uint64_t pointers = *reinterpret_cast<const uint64_t*>(data + 16);
  std::memcpy(memory, data + 24, std::min(size - 24, kPage));
  // Some 8-byte words become pointers: into the page, to code, or stay as they are if they point to nothing. (Others could lie in
  // AddressSanitizer's shadow, which the kernel can read and instrumented code can't.)
  const auto base = reinterpret_cast<uint64_t>(memory);
  for (size_t i = 0; i < 64; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, memory + 8 * i, 8);
    if ((pointers >> i & 1) || (word >= 4096 && word < uint64_t{1} << 48))
      word = word % 16 == 15   ? reinterpret_cast<uint64_t>(no_deleter())
             : word % 16 == 14 ? base + word % kPage / 8 * 8
                               : base + word % (kPage + 64);
    std::memcpy(memory + 8 * i, &word, 8);
  }
  const bool is_pointer =
      any.type_index >= kTVMFFIObject || (any.type_index >= kTVMFFIDLTensorPtr && any.type_index <= kTVMFFIObjectRValueRef);
  if (is_pointer && any.v_uint64 >= 4096 && any.v_uint64 < uint64_t{1} << 48) any.v_uint64 = base + any.v_uint64 % 512 / 8 * 8;
  try {
    const tutti::Value value = tutti::ffi::view(any, "fuzz");
    if (value.kind() != tutti::Value::Kind::kFunction) (void)(value == value);  // reads all of it
  } catch (const tutti::Error&) {
  }
  return 0;
}
