#include "checkpoint/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "checkpoint/file.h"
#include "checkpoint/ledger.h"
#include "core/log.h"
#include "tutti/error.h"

namespace tutti::distributed {
namespace {

namespace fs = std::filesystem;

constexpr size_t kIdDigits = 8;
constexpr std::string_view kIndexEnd = ".safetensors.index.json", kDataEnd = ".safetensors", kLedgerEnd = ".saving",
                           kPartEnd = ".part";

std::string new_id() {
  std::random_device device;
  return fmt::format("{:08x}", device());
}

/// Which tensors go together in a file of an index.
std::vector<Catalogue> split(const Catalogue& tensors, int64_t most_bytes) {
  std::vector<Catalogue> files;
  int64_t bytes = 0;
  for (const auto& [name, stored] : tensors) {
    const int64_t more = size_bytes(stored.sinfo.shape, stored.sinfo.dtype);
    if (files.empty() || more > most_bytes - bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += more;
    files.back().emplace(name, stored);
  }
  return files;
}

std::string stem_of(const std::string& index) { return index.substr(0, index.size() - kIndexEnd.size()); }

int64_t total_bytes(const Catalogue& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, stored] : tensors)
    if (__builtin_add_overflow(bytes, size_bytes(stored.sinfo.shape, stored.sinfo.dtype), &bytes))
      throw UsageError("save: the tensors have more than 2^63 bytes");
  return bytes;
}

/// #: a digit, ?: a hexadecimal one.
bool matches(std::string_view text, std::string_view pattern) {
  return std::ranges::equal(text, pattern, [](char c, char p) {
    const bool is_digit = c >= '0' && c <= '9';
    return p == '#' ? is_digit : p == '?' ? is_digit || (c >= 'a' && c <= 'f') : c == p;
  });
}

/// Of a file that a save to `name` makes; empty: it is another file. `stem`: of an index.
std::string id_of(std::string_view file, const std::string& name, const std::string& stem) {
  constexpr std::string_view kIdEnd = ".????????";
  const auto last_id = [&](std::string_view text) { return std::string(text.substr(text.size() - kIdDigits)); };
  const auto is_data = [&](std::string_view text) {
    return !stem.empty() && text.starts_with(stem) && matches(text.substr(stem.size()), "-#####-of-#####.????????.safetensors");
  };
  if (is_data(file)) return last_id(file.substr(0, file.size() - kDataEnd.size()));
  for (const std::string_view end : {kLedgerEnd, kPartEnd}) {
    if (!file.ends_with(end)) continue;
    file.remove_suffix(end.size());
    if (file.size() < kIdEnd.size() || !matches(file.substr(file.size() - kIdEnd.size()), kIdEnd)) return {};
    const std::string_view of = file.substr(0, file.size() - kIdEnd.size());
    return of == name || (end == kPartEnd && is_data(of)) ? last_id(file) : std::string();
  }
  return {};
}

std::set<std::string> files_in(const fs::path& index) {
  const detail::File file = detail::File::open(index.string());
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(text.data(), text.size(), 0);
  std::set<std::string> files;
  for (const auto& [tensor, in] : parse_index(text, index.string())) files.insert(in);
  return files;
}

/// By all indexes of the folder.  @throws  one can't be read: it may name any file
std::set<std::string> named_in(const fs::path& folder) {
  std::set<std::string> named;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().ends_with(kIndexEnd)) named.merge(files_in(entry.path()));
  return named;
}

void check_names(const Catalogue& tensors, FileKind kind, const SaveOptions& options) {
  for (const auto& [name, stored] : tensors)
    if ((name.empty() && kind != FileKind::kNpy) || name == "__metadata__")
      throw UsageError(fmt::format("save: '{}' can't be the name of a tensor", name));
  for (const auto& [name, value] : options.metadata)
    if (name.starts_with("tutti.") || name == "total_size")
      throw UsageError(fmt::format("save: metadata named '{}' would be taken for tutti's", name));
  if (options.file_bytes < 1) throw UsageError(fmt::format("save: files of {} bytes", options.file_bytes));
}

}  // namespace

Layout lay_out(const std::string& path, const std::map<std::string, TensorStructInfo>& tensors, const SaveOptions& options) {
  Layout layout{{}, kind_of(path), new_id()};
  Catalogue all;
  for (const auto& [name, sinfo] : tensors) all[name].sinfo = sinfo;
  total_bytes(all);
  check_names(all, layout.kind, options);
  if (layout.kind == FileKind::kIndex) {
    auto files = split(all, options.file_bytes);
    if (constexpr size_t kMost = 99999; files.size() > kMost)  // the digits of a name
      throw UsageError(fmt::format("save: {} files, expected {} at most; raise file_bytes", files.size(), kMost));
    for (size_t i = 0; i < files.size(); ++i)
      layout.files.push_back({fmt::format("{}-{:05}-of-{:05}.{}.safetensors", stem_of(path), i + 1, files.size(), layout.id),
                              {},
                              std::move(files[i])});
    layout.files.push_back({path, {}, {}});
  } else {
    if (layout.kind == FileKind::kNpy && all.size() != 1)
      throw UsageError(fmt::format("save: a .npy file has one tensor, not {}; use .safetensors", all.size()));
    if (layout.kind == FileKind::kNpy && !options.metadata.empty())
      throw UsageError("save: a .npy file has no metadata; use .safetensors");
    layout.files.push_back({path, {}, std::move(all)});
  }
  for (NewFile& file : layout.files) {
    file.part = fmt::format("{}.{}{}", file.path, layout.id, kPartEnd);
    file.header_bytes = std::ssize(front_of(layout, file, options));
    file.bytes = file.header_bytes + total_bytes(file.tensors);
  }
  return layout;
}

std::string front_of(const Layout& layout, NewFile& file, const SaveOptions& options) {
  if (layout.kind == FileKind::kNpy) {
    std::string header = format_npy(file.tensors.begin()->second.sinfo);
    file.tensors.begin()->second.begin = std::ssize(header);
    return header;
  }
  if (layout.kind == FileKind::kSafetensors || &file != &layout.files.back())
    return format_safetensors(file.tensors, options.metadata);
  std::map<std::string, std::string> weight_map;
  int64_t bytes = 0;
  for (const NewFile& each : layout.files) {
    for (const auto& [name, stored] : each.tensors) weight_map[name] = fs::path(each.path).filename().string();
    bytes += total_bytes(each.tensors);
  }
  return format_index(weight_map, bytes, options.metadata);
}

void remove_remains(const std::string& path) noexcept try {
  const fs::path whole(path);
  const std::string name = whole.filename().string(), stem = name.ends_with(kIndexEnd) ? stem_of(name) : "";
  std::vector<std::pair<std::string, std::string>> found;  // file, id
  std::error_code error;
  for (fs::directory_iterator entry(whole.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (const std::string id = id_of(file, name, stem); !id.empty()) found.emplace_back(file, id);
  }
  std::map<std::string, std::string> left;  // ids, and those of the index that each was to replace
  for (const auto& [file, id] : found)
    if (const fs::path ledger = whole.parent_path() / file; file.ends_with(kLedgerEnd) && detail::Ledger::is_abandoned(ledger))
      left[id] = detail::Ledger::earlier_of(ledger);
  if (left.empty()) return;
  // the last look: a save that was killed may have come to its end before
  const std::set<std::string> named = stem.empty() ? std::set<std::string>() : named_in(whole.parent_path());
  std::set<std::string> ids;  // of the index
  for (const std::string& file : files_of_index(path)) ids.insert(id_of(fs::path(file).filename().string(), name, stem));
  std::set<std::string> replaced;
  for (const auto& [id, earlier] : left)
    if (ids.contains(id)) replaced.insert(earlier);
  for (const bool is_ledger : {false, true})  // those last: without one nothing tells that the others are left
    for (const auto& [file, id] : found)
      if (file.ends_with(kLedgerEnd) == is_ledger && (left.contains(id) || replaced.contains(id)) && !named.contains(file)) {
        fs::remove(whole.parent_path() / file, error);
        detail::log(detail::LogLevel::kInfo, "{} of a save that was killed: removed", (whole.parent_path() / file).string());
      }
} catch (const std::exception& error) {
  detail::log(detail::LogLevel::kWarn, "what killed saves have left near {} is not removed: {}", path, error.what());
}

std::string id_of_index(const std::set<std::string>& files) {
  if (files.empty()) return {};
  const std::string& file = *files.begin();
  return file.substr(file.size() - kDataEnd.size() - kIdDigits, kIdDigits);
}

std::set<std::string> files_of_index(const std::string& path) noexcept try {
  std::set<std::string> files;
  const fs::path index(path);
  const std::string name = index.filename().string();
  if (name.ends_with(kIndexEnd) && fs::exists(index))
    for (const std::string& file : files_in(index))
      if (!id_of(file, name, stem_of(name)).empty()) files.insert((index.parent_path() / file).string());
  return files;
} catch (const std::exception& error) {
  detail::log(detail::LogLevel::kDebug, "the files of {} stay: {}", path, error.what());
  return {};
}

void remove_replaced(const std::set<std::string>& files) noexcept try {
  if (files.empty()) return;
  const auto named = named_in(fs::path(*files.begin()).parent_path());
  std::error_code error;
  for (const std::string& file : files)
    if (!named.contains(fs::path(file).filename().string())) fs::remove(file, error);
} catch (const std::exception& error) {
  detail::log(detail::LogLevel::kWarn, "files of an earlier save stay: {}", error.what());
}

}  // namespace tutti::distributed
