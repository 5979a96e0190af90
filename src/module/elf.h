#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::ffi {

/// What a shared library says of itself before it is loaded.
struct ElfInfo {
  std::vector<std::string> needed;    ///< DT_NEEDED
  std::vector<std::string> run_path;  ///< DT_RUNPATH or DT_RPATH, split at ':'
  bool carries_modules = false;       ///< of TVM's, which TVM's runtime reads
  uint64_t init_array = 0;            ///< address of its constructors, relative to where it is loaded
  uint64_t init_array_count = 0;
};

constexpr size_t kElfHeaderBytes = 64;
/// `begin`: the first kElfHeaderBytes of a file, or all of a shorter one. `path` is for the message.
/// @throws UsageError  not a shared library, or one for another machine
void check_header(std::span<std::byte> begin, const std::string& path);

/// Reads the dynamic section of the file in `image` and takes the constructors out, so that dlopen does not run them: an
/// exception that leaves a constructor inside dlopen ends the process. `unneeded`: a library that the loader is not to look for.
/// @throws UsageError  as check_header; or the file ends before its segments do
ElfInfo take_constructors(std::span<std::byte> image, const std::string& path, std::string_view unneeded = {});

/// Names of the functions that a library exports. `dynamic`: its dynamic section, as it lies in memory (link_map::l_ld).
std::vector<std::string> exported_functions(const void* dynamic);

}  // namespace tutti::ffi
