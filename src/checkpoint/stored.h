#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/distributed.h"

namespace tutti::distributed {

/// A tensor in a file.
struct Stored {
  TensorStructInfo sinfo;
  std::string file;
  int64_t begin = 0;                      ///< of its bytes, in the file
  std::optional<uint32_t> crc;            ///< of its bytes, if the file says so
  int64_t file_bytes = 0, file_time = 0;  ///< of the file that was looked at
};
using Catalogue = std::map<std::string, Stored>;

enum class FileKind { kSafetensors, kIndex, kNpy };
/// By the end of the path.  @throws UsageError  none of these
FileKind kind_of(const std::string& path);

/// What a file or an index holds.  @throws UsageError  it is damaged; SystemError  it can't be read
Catalogue read_catalogue(const std::string& path);

// What follows reads and writes headers. The first bytes of a file are `text`; `file` is for messages and what is found.

/// @throws UsageError  damaged
Catalogue parse_safetensors(std::string_view text, int64_t file_bytes, const std::string& file);
/// Bytes that the header takes, with its length, which comes first.  @throws UsageError  no such file can be
int64_t safetensors_header_bytes(std::string_view first_8_bytes, int64_t file_bytes, const std::string& file);
/// What format_safetensors was given, of its JSON; of an index's what format_index was given. Other programs' numbers and lists
/// are left out.  @throws UsageError  no JSON, or deeper than a header is
std::map<std::string, std::string> parse_metadata(std::string_view json, const std::string& file, bool is_index);
/// The header of a file in which these tensors lie. Stored::begin is filled in first; its length depends on no CRC.
std::string format_safetensors(Catalogue& tensors, const std::map<std::string, std::string>& metadata);

Catalogue parse_npy(std::string_view text, int64_t file_bytes, const std::string& file);
std::string format_npy(const TensorStructInfo& sinfo);  ///< @throws UsageError  numpy lacks the dtype

/// The files by the tensors in them.
std::map<std::string, std::string> parse_index(std::string_view text, const std::string& file);
std::string format_index(const std::map<std::string, std::string>& weight_map, int64_t total_bytes,
                         const std::map<std::string, std::string>& metadata);

}  // namespace tutti::distributed
