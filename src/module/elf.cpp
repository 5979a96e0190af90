#include "module/elf.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tutti/error.h"

namespace tutti::ffi {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#elif defined(__powerpc64__)
constexpr uint16_t kMachine = EM_PPC64;
#elif defined(__riscv)
constexpr uint16_t kMachine = EM_RISCV;
#else
#error "state the ELF machine of this architecture"
#endif

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_386: return "x86 (32 bit)";
    case EM_X86_64: return "x86-64";
    case EM_AARCH64: return "aarch64";
    case EM_ARM: return "arm (32 bit)";
    case EM_PPC64: return "ppc64";
    case EM_RISCV: return "riscv";
    default: return fmt::format("machine {}", machine);
  }
}

/// A T at an offset of the file; every read is checked.
class Image {
 public:
  Image(std::span<std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}
  template <class T>
  T get(uint64_t offset) const {
    T value;
    std::memcpy(&value, at(offset, sizeof value), sizeof value);
    return value;
  }
  template <class T>
  void put(uint64_t offset, const T& value) {
    std::memcpy(at(offset, sizeof value), &value, sizeof value);
  }
  std::string text(uint64_t offset) const {
    const auto* begin = reinterpret_cast<const char*>(at(offset, 1));
    return std::string(begin, strnlen(begin, bytes_.size() - offset));
  }
  void require(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      throw UsageError(
          fmt::format("{} is a shared library that is cut short or damaged: the file has {} bytes, expected {} from byte {} "
                      "on; copy or build it again",
                      path_, bytes_.size(), size, offset));
  }

 private:
  std::byte* at(uint64_t offset, size_t size) const {
    require(offset, size);
    return bytes_.data() + offset;
  }
  std::span<std::byte> bytes_;
  const std::string& path_;
};

Elf64_Ehdr header_of(std::span<std::byte> bytes, const std::string& path) {
  if (bytes.size() < SELFMAG || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
    throw UsageError(fmt::format("{} is not a shared library (it is no ELF file)", path));
  const auto header = Image(bytes, path).get<Elf64_Ehdr>(0);  // e_machine lies at the same place in 32-bit files
  if (header.e_machine != kMachine || header.e_ident[EI_CLASS] != ELFCLASS64)
    throw UsageError(fmt::format("{} is for {}, this process is {}; build it for this machine", path,
                                 machine_name(header.e_machine), machine_name(kMachine)));
  if (header.e_type != ET_DYN)
    throw UsageError(fmt::format("{} is not a shared library ({}); link it with -shared", path,
                                 header.e_type == ET_REL    ? "an object file"
                                 : header.e_type == ET_EXEC ? "a program"
                                                            : "another ELF file"));
  return header;
}

/// Those behind it move up.
void remove_entry(Image& image, std::vector<uint64_t>& entries, const Elf64_Dyn& unwanted) {
  size_t kept = 0;
  for (const uint64_t at : entries) {
    const auto entry = image.get<Elf64_Dyn>(at);
    if (entry.d_tag == unwanted.d_tag && entry.d_un.d_val == unwanted.d_un.d_val) continue;
    image.put(entries[kept++], entry);
  }
  for (const auto end = Elf64_Dyn{}; kept < entries.size(); entries.pop_back()) image.put(entries.back(), end);
}

static_assert(kElfHeaderBytes == sizeof(Elf64_Ehdr));

}  // namespace

void check_header(std::span<std::byte> begin, const std::string& path) { header_of(begin, path); }

ElfInfo take_constructors(std::span<std::byte> bytes, const std::string& path, std::string_view unneeded) {
  const Elf64_Ehdr header = header_of(bytes, path);
  Image image(bytes, path);
  std::vector<Elf64_Phdr> segments;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    segments.push_back(image.get<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr)));
    // what is mapped beyond the end of the file ends the process by SIGBUS
    if (segments.back().p_type == PT_LOAD) image.require(segments.back().p_offset, segments.back().p_filesz);
  }
  const auto file_offset = [&](uint64_t address) -> std::optional<uint64_t> {
    for (const auto& s : segments)
      if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
        return s.p_offset + (address - s.p_vaddr);
    return std::nullopt;
  };

  ElfInfo info;
  uint64_t strings = 0, strings_bytes = 0, path_list = 0, init_size_at = 0;
  std::vector<Elf64_Dyn> needed;
  std::vector<uint64_t> entries;  // of the dynamic section: where they are
  for (const auto& segment : segments) {
    if (segment.p_type != PT_DYNAMIC || !entries.empty()) continue;
    for (uint64_t at = segment.p_offset; at + sizeof(Elf64_Dyn) <= segment.p_offset + segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = image.get<Elf64_Dyn>(at);
      entries.push_back(at);
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED) needed.push_back(entry);
      if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
      if (entry.d_tag == DT_STRSZ) strings_bytes = entry.d_un.d_val;
      if (entry.d_tag == DT_RUNPATH || (entry.d_tag == DT_RPATH && path_list == 0)) path_list = entry.d_un.d_val;
      if (entry.d_tag == DT_INIT_ARRAY) info.init_array = entry.d_un.d_ptr;
      if (entry.d_tag == DT_INIT_ARRAYSZ) {
        info.init_array_count = entry.d_un.d_val / sizeof(void*);
        init_size_at = at;
      }
    }
  }
  if (init_size_at != 0) {
    auto entry = image.get<Elf64_Dyn>(init_size_at);
    entry.d_un.d_val = 0;
    image.put(init_size_at, entry);
  }
  const auto string_table = file_offset(strings);
  if (!string_table) throw UsageError(fmt::format("{} is a shared library without a dynamic section", path));
  const std::string_view names(reinterpret_cast<const char*>(bytes.data()) + *string_table,  // which lies in the file
                               std::min<uint64_t>(strings_bytes, bytes.size() - *string_table));
  using namespace std::string_view_literals;
  info.carries_modules = names.find("\0__tvm_ffi__library_bin\0"sv) != names.npos;
  for (const Elf64_Dyn& entry : needed) info.needed.push_back(image.text(*string_table + entry.d_un.d_val));
  for (size_t i = 0; i < needed.size(); ++i)
    if (info.needed[i] == unneeded) remove_entry(image, entries, needed[i]);
  if (path_list != 0) {
    std::string rest = image.text(*string_table + path_list) + ":";
    for (size_t colon; (colon = rest.find(':')) != std::string::npos; rest.erase(0, colon + 1))
      if (colon > 0) info.run_path.push_back(rest.substr(0, colon));
  }
  return info;
}

namespace {

/// DT_GNU_HASH does not say how many symbols there are: the last of the fullest bucket's chain is the last one.
uint32_t count_symbols(const uint32_t* gnu_hash) {
  const uint32_t buckets = gnu_hash[0], first = gnu_hash[1], filters = gnu_hash[2];
  const auto* bucket = gnu_hash + 4 + filters * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  uint32_t last = *std::max_element(bucket, bucket + buckets);
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

}  // namespace

std::vector<std::string> exported_functions(const void* dynamic) {
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  uint32_t count = 0;
  for (auto* entry = static_cast<const ElfW(Dyn)*>(dynamic); entry->d_tag != DT_NULL; ++entry) {
    const auto* there = reinterpret_cast<const void*>(entry->d_un.d_ptr);  // NOLINT(performance-no-int-to-ptr)
    if (entry->d_tag == DT_SYMTAB) symbols = static_cast<const ElfW(Sym)*>(there);
    else if (entry->d_tag == DT_STRTAB) strings = static_cast<const char*>(there);
    else if (entry->d_tag == DT_HASH) count = static_cast<const uint32_t*>(there)[1];
    else if (entry->d_tag == DT_GNU_HASH && count == 0) count = count_symbols(static_cast<const uint32_t*>(there));
  }
  std::vector<std::string> names;
  for (uint32_t i = 0; symbols && strings && i < count; ++i)
    if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx != SHN_UNDEF)
      names.emplace_back(strings + symbols[i].st_name);
  return names;
}

}  // namespace tutti::ffi
