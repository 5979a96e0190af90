// A worker's side of a save.
#include "checkpoint/save_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "checkpoint/crc.h"
#include "checkpoint/file.h"
#include "checkpoint/ledger.h"
#include "checkpoint/runs.h"
#include "distributed/access.h"
#include "distributed/join.h"
#include "distributed/redistribute.h"
#include "tutti/error.h"
#include "tutti/function.h"
#include "tutti/worker.h"

namespace tutti::distributed {
namespace {

using detail::File;
using detail::Ledger;

constexpr int64_t kPiece = int64_t{1} << 20, kNoted = int64_t{32} << 20;

SavedTensor to_saved(const Value& values) {
  const List& list = values.as<List>();
  return {to_info(list.at(0)), list.at(1).as<std::string>(), list.at(2).as<int64_t>()};
}

/// Bytes [begin, end) of a part of a tensor, and where they go.
struct Share {
  size_t tensor;  ///< its number
  std::string file;
  int64_t file_begin, whole_bytes;
  Runs runs;
  int64_t begin, end;
  Tensor part;  ///< row-major; or a copy of these bytes alone
  bool is_copy = false;
};

class Writer {
 public:
  Writer(std::string ledger, bool direct, const List& tensors, Args parts)
      : ledger_(std::move(ledger)), direct_(direct), crcs_(tensors.size()) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const SavedTensor saved = to_saved(tensors[i]);
      if (saved.info.device_mesh().coordinate(worker_)) add(i, saved, parts[i]);
    }
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    if (thread_.joinable()) thread_.join();
  }
  void copy_parts() {
    for (Share& share : shares_) {
      const Tensor copy = Tensor::empty({share.end - share.begin}, kUInt8);
      copy.copy_from(as_bytes(share, share.begin, share.end));
      share.part = copy;
      share.is_copy = true;
    }
  }
  void write() {
    for (const Share& share : shares_) write(share);
    close();
    Ledger::finish(ledger_, worker_, bytes_, crcs_);
  }
  void start() {
    thread_ = std::thread([this] {
      try {
        write();
      } catch (const std::exception& error) {
        fail(error.what());
      }
      shares_.clear();
    });
  }
  void fail(const char* why) const noexcept { Ledger::fail(ledger_, worker_, crcs_.size(), why); }

 private:
  void add(size_t number, const SavedTensor& saved, const Value& value) {
    Tensor part = checked_part(value, saved.info);
    const Holder holder = holder_of(saved.info, worker_);
    const TensorStructInfo& whole = saved.info.tensor_sinfo();
    Runs runs(saved.info.local(worker_), whole.shape, whole.dtype.size_bytes());
    const auto cut = [&](int64_t index) {  // replicas share; whole elements
      const int64_t item = whole.dtype.size_bytes();
      return runs.part_bytes() / item * index / holder.count * item;
    };
    const int64_t begin = cut(holder.index), end = cut(holder.index + 1);
    if (begin == end) return;
    if (!part.is_contiguous()) part = on_host(part);
    shares_.push_back(
        {number, saved.file, saved.begin, size_bytes(whole.shape, whole.dtype), std::move(runs), begin, end, std::move(part)});
  }
  static Tensor as_bytes(const Share& share, int64_t begin, int64_t end) {
    const int64_t origin = share.is_copy ? share.begin : 0;
    return Tensor::wrap(static_cast<std::byte*>(share.part.data()) + (begin - origin), {end - begin}, kUInt8, {}, {},
                        share.part.device());
  }
  void note() const { Ledger::note(ledger_, worker_, crcs_.size(), {Ledger::State::kWriting, bytes_, syncs_, {}}); }
  /// To the disk, which may take long.
  void close() {
    if (!file_) return;
    for (const bool has_begun : {false, true}) {
      if (has_begun) file_.sync();
      ++syncs_;
      note();
    }
    file_ = File();
  }
  void write(const Share& share) {
    if (file_.path() != share.file) {
      close();
      file_ = File::open_to_write(share.file, direct_);
    }
    detail::PartialCrc crc;
    const bool is_here = share.part.device().type == dl::kCPU;
    const Tensor buffer = is_here ? Tensor() : Tensor::empty({std::min(kPiece, share.end - share.begin)}, kUInt8);
    for (int64_t begin = share.begin; begin < share.end; begin += kPiece) {
      const int64_t end = std::min(share.end, begin + kPiece);
      Tensor piece = as_bytes(share, begin, end);
      if (!is_here) {
        const Tensor here = buffer.slice(0, end - begin);
        here.copy_from(piece);
        piece = here;
      }
      share.runs.each(begin, end, [&](const Run& run) {
        const auto* from = static_cast<const std::byte*>(piece.data()) + (run.in_part - begin);
        file_.write(from, static_cast<size_t>(run.bytes), share.file_begin + run.in_tensor);
        crc.add(from, static_cast<size_t>(run.bytes), run.in_tensor);
      });
      bytes_ += end - begin;
      if (bytes_ - noted_ < kNoted) continue;
      noted_ = bytes_;
      file_.begin_to_sync();
      note();
    }
    crcs_[share.tensor] = crc.of(share.whole_bytes);
  }

  const int worker_ = worker::id();
  const std::string ledger_;
  const bool direct_;
  std::vector<uint32_t> crcs_;
  std::vector<Share> shares_;
  File file_;  ///< that is written to: tensors of one file come one after another
  int64_t bytes_ = 0, noted_ = 0, syncs_ = 0;
  std::thread thread_;
};

Value save_parts(Args args) {
  const std::string ledger = args[0].as<std::string>();
  const List& tensors = args[3].as<List>();
  try {
    const auto writer = std::make_shared<Writer>(ledger, args[2].as<bool>(), tensors, args.subspan(4));
    if (!args[1].as<bool>()) {
      writer->write();
      return {};
    }
    writer->copy_parts();
    writer->start();
    return writer;
  } catch (const std::exception& error) {
    Ledger::fail(ledger, worker::id(), tensors.size(), error.what());
    throw;
  }
}

}  // namespace

List to_values(const SavedTensor& tensor) { return {to_values(tensor.info), tensor.file, tensor.begin}; }

void register_save_parts() { register_global_func("runtime.disco.save_parts", save_parts, {.override_existing = true}); }

}  // namespace tutti::distributed
