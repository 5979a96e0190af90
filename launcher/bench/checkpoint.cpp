// Sharded tensors into a file and back, beside one process that writes and reads as many bytes.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "bench/bench.h"
#include "bench/collective_report.h"
#include "bench/measure.h"
#include "core/handle.h"
#include "tutti/tutti.h"

namespace tutti::bench {
namespace {

using namespace distributed;

constexpr size_t kPiece = size_t{1} << 20;

/// As `dd conv=fsync` does.
void write_file(const std::string& path, int64_t bytes) {
  const std::string piece(kPiece, 'x');
  const detail::Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  for (; bytes > 0; bytes -= std::ssize(piece))
    if (write(file.get(), piece.data(), piece.size()) != std::ssize(piece)) throw SystemError("can't write to " + path);
  if (fsync(file.get()) != 0) throw SystemError("can't write " + path + " to the disk");
}

/// As `cat FILE >/dev/null` does.
void read_file(const std::string& path) {
  std::string piece(kPiece, '\0');
  const detail::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ssize_t got = 0;
  while ((got = read(file.get(), piece.data(), piece.size())) > 0) continue;
  if (got < 0 || !file) throw SystemError("can't read " + path);
}

/// A folder of its own, that goes.
struct Folder {
  explicit Folder(const std::string& in) : path(std::filesystem::path(in) / fmt::format("tutti-bench-{}", getpid())) {
    std::filesystem::create_directories(path);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code none;
    std::filesystem::remove_all(path, none);
  }
  std::string file(const char* name) const { return (path / name).string(); }
  const std::filesystem::path path;
};

int controller(const Options& options, const std::string& size, const std::string& in) {
  constexpr int64_t kTensors = 16, kColumns = 1024;
  Session s = Session::create();
  const int64_t rows = std::max<int64_t>(parse_size(size) / 4 / kColumns / kTensors, 1), bytes = kTensors * rows * kColumns * 4;
  Report report(options, fmt::format("{} MiB of float32 in {} tensors, in {}", bytes >> 20, kTensors, in), s.num_workers());
  const Folder folder(in);
  const std::string path = folder.file("x.safetensors"), raw = folder.file("raw");
  const DeviceMesh mesh({s.num_workers()});
  const auto rows_of = Placement::from_text("S[0]");
  std::map<std::string, DTensor> tensors;
  for (int64_t i = 0; i < kTensors; ++i) tensors.emplace(std::to_string(i), random(s, {{{rows, kColumns}}, mesh, rows_of}, i));
  const auto rate = [&](auto once) { return static_cast<double>(bytes) / seconds(once) * 1e-9; };
  const auto [saved, written] = paired(
      options.repeats, [&] { return rate([&] { save(s, path, tensors); }); },
      [&] { return rate([&] { write_file(raw, bytes); }); });
  report.add({"save", "GB/s", saved, written, "write, fsync"});
  std::optional<Saving> saving;
  std::vector<double> whole;
  const auto [blocked, again] = paired(
      options.repeats,
      [&] {
        const auto begin = seconds([&] { saving.emplace(save_async(s, path, tensors)); });
        whole.push_back(begin + seconds([&] { saving->wait(); }));
        saving.reset();
        return begin * 1e3;
      },
      [&] { return seconds([&] { save(s, path, tensors); }) * 1e3; });
  report.add({"save_async, until it returns", "ms", blocked, again, "save"});
  report.add({"save_async, until the file is there", "ms", median(whole) * 1e3, again, "save"});
  bool is_right = true;
  for (const bool verify : {true, false})
    for (const char* placement : {"S[0]", "S[1]", "R"}) {
      const auto choose = [&](const std::string&, const TensorStructInfo&) { return Placement::from_text(placement); };
      std::map<std::string, DTensor> loaded;
      const auto [ours, theirs] = paired(
          options.repeats,
          [&] {
            loaded.clear();
            s.sync_all();
            return rate([&] { loaded = load(s, path, mesh, choose, {.verify = verify}); });
          },
          [&] { return rate([&] { read_file(path); }); });
      is_right &= Value(loaded.at("1").full()) == Value(tensors.at("1").full());
      report.add({fmt::format("load as {}{}", placement, verify ? "" : ", no checksums"), "GB/s", ours, theirs, "read"});
    }
  report.finish();
  if (!is_right) fmt::print(stderr, "checkpoint: data was wrong\n");
  return is_right ? 0 : 1;
}

}  // namespace

int checkpoint(int argc, char** argv, const Options& options, const std::string& size, const std::string& folder) {
  return run(argc, argv, [&](int, char**) { return controller(options, size, folder); });
}

}  // namespace tutti::bench
