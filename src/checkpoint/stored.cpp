#include "checkpoint/stored.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "checkpoint/file.h"
#include "tutti/checkpoint.h"
#include "tutti/error.h"

namespace tutti::distributed {
namespace {

using detail::File;

constexpr int64_t kMostIndex = 100'000'000, kMostNpyHeader = 1 << 17;

std::string read_front(const File& file, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read(text.data(), text.size(), 0);
  return text;
}

Catalogue stamped(Catalogue tensors, const File& file) {
  for (auto& [name, stored] : tensors) {
    stored.file_bytes = file.size();
    stored.file_time = file.time();
  }
  return tensors;
}

/// With its length, which comes first.
std::string read_header(const File& file, const std::string& path) {
  const int64_t size = file.size();
  return read_front(file, safetensors_header_bytes(read_front(file, std::min<int64_t>(8, size)), size, path));
}

std::string read_index_text(const std::string& path) {
  const File index = File::open(path);
  if (index.size() > kMostIndex)
    throw UsageError(fmt::format("{} has {} bytes, an index {} at most", path, index.size(), kMostIndex));
  return read_front(index, index.size());
}

Catalogue read_safetensors(const std::string& path) {
  const File file = File::open(path);
  return stamped(parse_safetensors(read_header(file, path), file.size(), path), file);
}

Catalogue read_index(const std::string& path) {
  const auto weight_map = parse_index(read_index_text(path), path);
  const auto folder = std::filesystem::path(path).parent_path();
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  Catalogue all;
  for (const std::string& name : names)
    for (auto& [tensor, stored] : read_safetensors((folder / name).string()))
      if (const auto found = weight_map.find(tensor); found != weight_map.end() && found->second == name)
        all.emplace(tensor, std::move(stored));
  for (const auto& [tensor, file] : weight_map)
    if (!all.contains(tensor))
      throw UsageError(fmt::format("{}: weight_map says that '{}' is in {}, which lacks it", path, tensor, file));
  return all;
}

}  // namespace

FileKind kind_of(const std::string& path) {
  if (path.find('\0') != std::string::npos) throw UsageError("a path with a NUL in it");
  if (path.ends_with(".safetensors")) return FileKind::kSafetensors;
  if (path.ends_with(".safetensors.index.json")) return FileKind::kIndex;
  if (path.ends_with(".npy")) return FileKind::kNpy;
  throw UsageError(fmt::format("'{}': expected a name that ends in .safetensors, .safetensors.index.json or .npy", path));
}

Catalogue read_catalogue(const std::string& path) {
  switch (kind_of(path)) {
    case FileKind::kSafetensors: return read_safetensors(path);
    case FileKind::kIndex: return read_index(path);
    case FileKind::kNpy: break;
  }
  const File file = File::open(path);
  return stamped(parse_npy(read_front(file, std::min(file.size(), kMostNpyHeader)), file.size(), path), file);
}

std::map<std::string, TensorStructInfo> stored_tensors(const std::string& path) {
  std::map<std::string, TensorStructInfo> found;
  for (const auto& [name, stored] : read_catalogue(path)) found.emplace(name, stored.sinfo);
  return found;
}

std::map<std::string, std::string> stored_metadata(const std::string& path) {
  switch (kind_of(path)) {
    case FileKind::kSafetensors:
      return parse_metadata(read_header(File::open(path), path).substr(8), "the header of " + path, false);
    case FileKind::kIndex: return parse_metadata(read_index_text(path), path, true);
    case FileKind::kNpy: break;
  }
  File::open(path);  // it is there
  return {};
}

}  // namespace tutti::distributed
