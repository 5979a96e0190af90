// Loading: the controller reads what is where, the workers read their own bytes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "checkpoint/crc.h"
#include "checkpoint/file.h"
#include "checkpoint/runs.h"
#include "checkpoint/save_parts.h"
#include "checkpoint/stored.h"
#include "distributed/access.h"
#include "distributed/transition.h"
#include "tutti/checkpoint.h"
#include "tutti/error.h"
#include "tutti/function.h"
#include "tutti/worker.h"

namespace tutti::distributed {
namespace {

using detail::File;

constexpr int64_t kPiece = int64_t{1} << 20;
constexpr int64_t kSieved = int64_t{16} << 10;  // bytes; shorter runs are read with what lies between them,
constexpr int64_t kSparse = 8;                  // unless that is so many times as much

/// Reads runs of a file in order; short ones with what lies between them.
class Sieve {
 public:
  Sieve(const File& file, const Runs& runs, int64_t tensor_begin)
      : file_(file),
        is_open_(runs.length() >= kSieved || runs.span() > kSparse * runs.part_bytes()),
        end_(tensor_begin + runs.end()) {}
  void read(std::byte* to, int64_t bytes, int64_t at) {
    if (is_open_) return file_.read(to, static_cast<size_t>(bytes), at);
    if (at < begin_ || at + bytes > begin_ + std::ssize(buffer_)) {
      begin_ = at;
      buffer_.resize(static_cast<size_t>(std::min(kPiece, end_ - at)));
      file_.read(buffer_.data(), buffer_.size(), at);
    }
    std::copy_n(buffer_.data() + (at - begin_), bytes, to);
  }

 private:
  const File& file_;
  const bool is_open_;  ///< runs are read one by one
  const int64_t end_;   ///< of the bytes that are wanted
  int64_t begin_ = 0;
  std::vector<std::byte> buffer_;
};

struct LoadedTensor {
  DTensorStructInfo info;
  std::string file;
  int64_t begin, file_bytes, file_time;
};

LoadedTensor to_loaded(const Value& values) {
  const List& list = values.as<List>();
  return {to_info(list.at(0)), list.at(1).as<std::string>(), list.at(2).as<int64_t>(), list.at(3).as<int64_t>(),
          list.at(4).as<int64_t>()};
}

/// A worker's part, and, of those that have the same, the first one's term of the tensor's CRC.
std::pair<Tensor, uint32_t> load_part(const LoadedTensor& loaded, const File& file, bool verify) {
  const TensorStructInfo& whole = loaded.info.tensor_sinfo();
  const int64_t worker = worker::id();
  const Block block = loaded.info.local(worker);
  const Runs runs(block, whole.shape, whole.dtype.size_bytes());
  const Tensor part = Tensor::empty(block.shape, whole.dtype, worker::device());
  const bool is_here = part.device().type == dl::kCPU, has_crc = verify && holder_of(loaded.info, worker).index == 0;
  const Tensor buffer = is_here ? Tensor() : Tensor::empty({std::min(kPiece, runs.part_bytes())}, kUInt8);
  detail::PartialCrc crc;
  Sieve sieve(file, runs, loaded.begin);
  for (int64_t begin = 0; begin < runs.part_bytes(); begin += kPiece) {
    const int64_t end = std::min(runs.part_bytes(), begin + kPiece);
    auto* const to = static_cast<std::byte*>(is_here ? part.data() : buffer.data()) + (is_here ? begin : 0);
    runs.each(begin, end, [&](const Run& run) {
      std::byte* const at = to + (run.in_part - begin);
      sieve.read(at, run.bytes, loaded.begin + run.in_tensor);
      if (has_crc) crc.add(at, static_cast<size_t>(run.bytes), run.in_tensor);
    });
    if (is_here) continue;
    Tensor::wrap(static_cast<std::byte*>(part.data()) + begin, {end - begin}, kUInt8, {}, {}, part.device())
        .copy_from(buffer.slice(0, end - begin));
  }
  return {part, has_crc ? crc.of(size_bytes(whole.shape, whole.dtype)) : 0};
}

void check_same(const File& file, const LoadedTensor& loaded) {
  if (file.size() == loaded.file_bytes && file.time() == loaded.file_time) return;
  throw SystemError(
      fmt::format("{} is not what the controller has looked at: it has changed meanwhile, or is another file on "
                  "this node; load it again",
                  loaded.file));
}

/// runtime.disco.load_parts: this worker's parts, and at the end the terms of their CRCs.
Value load_parts(const List& tensors, bool verify, bool direct) {
  List parts;
  std::vector<uint32_t> crcs(tensors.size());
  File file;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const LoadedTensor loaded = to_loaded(tensors[i]);
    parts.emplace_back();
    if (!loaded.info.device_mesh().coordinate(worker::id())) continue;
    if (file.path() != loaded.file) {
      file = File::open(loaded.file, direct);
      check_same(file, loaded);
    }
    auto [part, crc] = load_part(loaded, file, verify);
    parts.back() = std::move(part);
    crcs[i] = crc;
    check_same(file, loaded);  // still
  }
  parts.emplace_back(Tensor::from<uint32_t>(crcs));
  return parts;
}

/// runtime.disco.check_loaded: all workers together hold the sums of the terms against what the files say. `expected`: None, it
/// says nothing.
void check_loaded(const List& parts, const List& names, const List& expected) {
  const auto own = parts.back().as<Tensor>();
  const Comm world = worker::world();
  const Tensor all = Tensor::empty({world.size(), own.element_count()}, kUInt32);
  world.allgather(own, all);
  if (worker::id() != 0) return;  // one says it for all
  std::string wrong;
  const auto crcs = all.values<uint32_t>();
  for (size_t i = 0; i < names.size(); ++i) {
    uint32_t crc = 0;
    for (size_t worker = 0; worker < static_cast<size_t>(world.size()); ++worker) crc ^= crcs[worker * names.size() + i];
    if (expected[i].is_none() || expected[i].as<int64_t>() == crc) continue;
    wrong += fmt::format("{}'{}' has CRC-32 {:08x}, its file says {:08x}", wrong.empty() ? "" : "; ", names[i].as<std::string>(),
                         crc, expected[i].as<int64_t>());
  }
  if (!wrong.empty()) throw SystemError(fmt::format("load: {}: the file is damaged", wrong));
}

}  // namespace

std::map<std::string, DTensor> load(Session& session, const std::string& path, const DeviceMesh& mesh,
                                    const ChoosePlacement& choose, const LoadOptions& options, Timeout timeout, Where where) {
  detail::Controller& controller = Access::controller(session);
  controller.refuse_to_record("load");
  check_workers(mesh, controller);
  kind_of(path);
  const Catalogue catalogue = read_catalogue(detail::absolute_path(path));
  std::vector<std::pair<std::string, DTensorStructInfo>> wanted;
  List tensors, names, crcs;
  for (const auto& [name, stored] : catalogue) {
    const auto placement = choose(name, stored.sinfo);
    if (!placement) continue;
    const DTensorStructInfo info(stored.sinfo, mesh, *placement), made = without_partial(info);
    check_transition(made, info);
    wanted.emplace_back(name, info);
    tensors.emplace_back(List{to_values(made), stored.file, stored.begin, stored.file_bytes, stored.file_time});
    names.emplace_back(name);
    crcs.emplace_back(stored.crc ? Value(*stored.crc) : Value());
  }
  const bool verify = options.verify && std::ranges::any_of(crcs, [](const Value& crc) { return !crc.is_none(); });
  const DRef parts = controller.call_builtin("load_parts", List{tensors, verify, options.direct}, where);
  controller.sync(detail::kAllWorkers, timeout, where);
  if (verify) controller.call_builtin("check_loaded", List{parts, names, crcs}, where);
  std::map<std::string, DTensor> loaded;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [name, info] = wanted[i];
    const DTensor tensor(controller.call_builtin("shard_item", List{parts, static_cast<int64_t>(i)}, where),
                         without_partial(info));
    loaded.emplace(name, tensor.info() == info ? tensor : tensor.redistribute(info.placement(), {}, where));
  }
  controller.sync(detail::kAllWorkers, timeout, where);
  return loaded;
}

void register_load_parts() {
  register_global_func("runtime.disco.load_parts", load_parts, {.override_existing = true});
  register_global_func("runtime.disco.check_loaded", check_loaded, {.override_existing = true});
}

}  // namespace tutti::distributed
