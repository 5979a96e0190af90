// The format is described at https://huggingface.co/docs/safetensors: 8 bytes with the length of a JSON header, the header, the
// tensors' bytes, row-major, one after another without holes.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "checkpoint/json.h"
#include "checkpoint/stored.h"
#include "tutti/error.h"

namespace tutti::distributed {
namespace {

using nlohmann::json;

constexpr int64_t kMostHeader = 100'000'000;  // as others limit it
constexpr int64_t kAlignment = 64;            // of the first tensor
constexpr auto kMetadata = "__metadata__", kCrcs = "tutti.crc32";

constexpr std::pair<const char*, DType> kDTypes[] = {{"BOOL", kBool},
                                                     {"U8", kUInt8},
                                                     {"I8", kInt8},
                                                     {"F8_E5M2", {dl::kFloat8_e5m2, 8, 1}},
                                                     {"F8_E4M3", {dl::kFloat8_e4m3fn, 8, 1}},
                                                     {"F8_E4M3FNUZ", {dl::kFloat8_e4m3fnuz, 8, 1}},
                                                     {"F8_E5M2FNUZ", {dl::kFloat8_e5m2fnuz, 8, 1}},
                                                     {"F8_E8M0", {dl::kFloat8_e8m0fnu, 8, 1}},
                                                     {"I16", kInt16},
                                                     {"U16", kUInt16},
                                                     {"F16", kFloat16},
                                                     {"BF16", kBFloat16},
                                                     {"I32", kInt32},
                                                     {"U32", kUInt32},
                                                     {"F32", kFloat32},
                                                     {"C64", kComplex64},
                                                     {"F64", kFloat64},
                                                     {"I64", kInt64},
                                                     {"U64", kUInt64}};

DType dtype_named(const std::string& name, const std::string& what) {
  for (const auto& [text, dtype] : kDTypes)
    if (name == text) return dtype;
  throw UsageError(fmt::format("{}: dtype '{}' is not one of those that tutti reads", what, name));
}

const char* name_of(DType dtype) {
  for (const auto& [text, each] : kDTypes)
    if (dtype == each) return text;
  throw UsageError(fmt::format("save: safetensors has no dtype {}", to_string(dtype)));
}

std::map<std::string, uint32_t> parse_crcs(const json& metadata, const std::string& what) {
  std::map<std::string, uint32_t> crcs;
  const auto found = metadata.find(kCrcs);
  if (found == metadata.end()) return crcs;
  const json listed = parse_object(found->get<std::string>(), what + ": " + kCrcs);
  for (const auto& [name, value] : listed.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    uint32_t crc = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
    if (error != std::errc() || end != text.data() + text.size() || text.size() != 8)
      throw UsageError(fmt::format("{}: {}: '{}' has no checksum of 8 hexadecimal digits", what, kCrcs, name));
    crcs[name] = crc;
  }
  return crcs;
}

Stored parse_entry(const json& entry, const std::string& what) {
  Stored stored;
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
    throw UsageError(fmt::format("{}: expected dtype, shape and data_offsets", what));
  const json &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!entry["dtype"].is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2)
    throw UsageError(fmt::format("{}: expected a name as dtype, a list as shape, two numbers as data_offsets", what));
  stored.sinfo.dtype = dtype_named(entry["dtype"].get<std::string>(), what);
  for (const json& extent : shape) stored.sinfo.shape.push_back(to_number(extent, what + ": shape"));
  stored.begin = to_number(offsets[0], what + ": data_offsets");
  const int64_t end = to_number(offsets[1], what + ": data_offsets");
  int64_t bytes = 0;
  try {
    bytes = size_bytes(stored.sinfo.shape, stored.sinfo.dtype);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", what, error.what()));
  }
  if (end < stored.begin || end - stored.begin != bytes)
    throw UsageError(fmt::format("{}: {} {} has {} bytes, but data_offsets are [{}, {}]", what, to_string(stored.sinfo.dtype),
                                 to_string(stored.sinfo.shape), bytes, stored.begin, end));
  return stored;
}

}  // namespace

int64_t safetensors_header_bytes(std::string_view first_8_bytes, int64_t file_bytes, const std::string& file) {
  uint64_t length = 0;
  if (first_8_bytes.size() < sizeof length)
    throw UsageError(fmt::format("{} is no safetensors file: it has {} bytes", file, file_bytes));
  std::memcpy(&length, first_8_bytes.data(), sizeof length);
  if (length > static_cast<uint64_t>(std::min(kMostHeader, file_bytes - 8)))
    throw UsageError(
        fmt::format("{} is no safetensors file, or cut off: it says that its header has {} bytes; the file has {}, "
                    "and no header has more than {}",
                    file, length, file_bytes, kMostHeader));
  return static_cast<int64_t>(length) + 8;
}

Catalogue parse_safetensors(std::string_view text, int64_t file_bytes, const std::string& file) {
  const int64_t data = safetensors_header_bytes(text.substr(0, 8), file_bytes, file);
  json header = parse_object(text.substr(8, static_cast<size_t>(data) - 8), "the header of " + file);
  std::map<std::string, uint32_t> crcs;
  if (const auto found = header.find(kMetadata); found != header.end()) {
    if (found->is_null()) *found = json::object();
    if (!found->is_object() || !std::ranges::all_of(*found, [](const json& value) { return value.is_string(); }))
      throw UsageError(fmt::format("{}: expected an object of strings as {}", file, kMetadata));
    crcs = parse_crcs(*found, file);
    header.erase(found);
  }
  Catalogue tensors;
  std::vector<std::pair<int64_t, std::string>> places;
  for (const auto& [name, entry] : header.items()) {
    Stored stored = parse_entry(entry, fmt::format("{}: '{}'", file, name));
    stored.file = file;
    if (const auto crc = crcs.find(name); crc != crcs.end()) stored.crc = crc->second;
    places.emplace_back(stored.begin, name);
    tensors.emplace(name, std::move(stored));
  }
  // empty ones first, where others begin
  std::ranges::sort(places, {}, [&](const auto& place) {
    const TensorStructInfo& sinfo = tensors.at(place.second).sinfo;
    return std::pair(place.first, size_bytes(sinfo.shape, sinfo.dtype));
  });
  int64_t end = 0;
  for (const auto& [begin, name] : places) {
    Stored& stored = tensors.at(name);
    if (begin != end)
      throw UsageError(
          fmt::format("{}: '{}' begins at byte {} of the tensors, expected {}: they must not overlap, or leave holes", file, name,
                      begin, end));
    end += size_bytes(stored.sinfo.shape, stored.sinfo.dtype);
    stored.begin += data;
  }
  if (end != file_bytes - data)
    throw UsageError(fmt::format("{}: its tensors have {} bytes, but {} follow the header; it is {}", file, end,
                                 file_bytes - data, end > file_bytes - data ? "cut off" : "damaged"));
  return tensors;
}

std::map<std::string, std::string> parse_metadata(std::string_view json_text, const std::string& file, bool is_index) {
  const json all = parse_object(json_text, file);
  std::map<std::string, std::string> metadata;
  const auto found = all.find(is_index ? "metadata" : kMetadata);
  if (found == all.end() || !found->is_object()) return metadata;
  for (const auto& [name, value] : found->items())
    if (value.is_string() && name != kCrcs) metadata[name] = value.get<std::string>();
  return metadata;
}

std::string format_safetensors(Catalogue& tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<int64_t, std::string>> order;  // as huggingface orders them: all are aligned so
  for (const auto& [name, stored] : tensors) order.emplace_back(-stored.sinfo.dtype.size_bytes(), name);
  std::ranges::sort(order);
  json header = json::object(), crcs = json::object();
  int64_t end = 0;
  for (const auto& [alignment, name] : order) {
    Stored& stored = tensors.at(name);
    stored.begin = end;
    end += size_bytes(stored.sinfo.shape, stored.sinfo.dtype);
    header[name] = {{"dtype", name_of(stored.sinfo.dtype)}, {"shape", stored.sinfo.shape}, {"data_offsets", {stored.begin, end}}};
    crcs[name] = fmt::format("{:08x}", stored.crc.value_or(0));
  }
  header[kMetadata] = metadata;
  header[kMetadata][kCrcs] = format_json(crcs);
  std::string text = format_json(header);
  text.resize((text.size() + 8 + kAlignment - 1) / kAlignment * kAlignment - 8, ' ');
  if (text.size() > kMostHeader)
    throw UsageError(fmt::format("save: the header of {} tensors has {} bytes, {} at most; use an index", tensors.size(),
                                 text.size(), kMostHeader));
  const uint64_t length = text.size();
  for (auto& [name, stored] : tensors) stored.begin += static_cast<int64_t>(length) + 8;
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

std::map<std::string, std::string> parse_index(std::string_view text, const std::string& file) {
  const json index = parse_object(text, file);
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object()) throw UsageError(fmt::format("{}: expected an object as weight_map", file));
  std::map<std::string, std::string> files;
  for (const auto& [name, value] : found->items()) {
    const std::string in = value.is_string() ? value.get<std::string>() : "";
    if (in.empty() || in.find_first_of(std::string_view("/\0", 2)) != std::string::npos || in == "." || in == "..")
      throw UsageError(
          fmt::format("{}: weight_map: '{}': expected the name of a file in the same folder, got {}", file, name, shown(value)));
    files[name] = in;
  }
  return files;
}

std::string format_index(const std::map<std::string, std::string>& weight_map, int64_t total_bytes,
                         const std::map<std::string, std::string>& metadata) {
  json about = metadata;
  about["total_size"] = total_bytes;
  return format_json({{"metadata", about}, {"weight_map", weight_map}}, 2) + "\n";
}

}  // namespace tutti::distributed
