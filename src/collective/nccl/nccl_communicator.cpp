#include "collective/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "collective/nccl/library.h"
#include "collective/nccl/progress.h"
#include "collective/nccl/types.h"
#include "collective/reduce.h"
#include "core/env.h"
#include "core/settings.h"
#include "device/devices.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
using namespace nccl;
using Clock = std::chrono::steady_clock;

constexpr auto kStarting = 1s;  // a start of this length waits for other members; a busy host alone has made one take 500 ms

int64_t before(const int64_t* counts, int rank) { return std::accumulate(counts, counts + rank, int64_t{0}); }

bool all_equal(const std::vector<int64_t>& counts) {
  return std::ranges::all_of(counts, [&](int64_t count) { return count == counts.front(); });
}

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(const Making& making)
      : library_(Library::of(making.device.type)),
        device_(making.device),
        size_(static_cast<int>(making.members.size())),
        plane_(making.plane),
        members_(making.members) {
    begin(making, first_id(making));
  }
  ~NcclCommunicator() override {
    if (!comm_) return;
    try {
      const auto end = Clock::now() + std::chrono::seconds(settings().timeout_s);
      if (settle(f().finalize.call(comm_), end) == kSuccess) f().destroy.call(std::exchange(comm_, nullptr));
    } catch (const std::exception&) {  // a member is lost
    }
    abort();
  }

  void start(const Operation& o) override;
  std::string poll_error() override {
    Status status = kSuccess;
    if (!comm_) return {};
    if (const Status failed = f().async_error.call(comm_, &status); failed != kSuccess)
      return library_.describe(f().async_error.name, failed, comm_);
    return status == kSuccess || status == kInProgress ? "" : library_.describe("a collective", status, comm_);
  }
  void abort() noexcept override {
    if (!comm_) return;
    try {
      device_api(device_).streams()->set_device(device_.id);  // NCCL sets it back to what this thread had: else to GPU 0
    } catch (const std::exception&) {                         // it is lost
    }
    f().abort.call(std::exchange(comm_, nullptr));
  }

 private:
  const Functions& f() const { return library_.functions; }
  UniqueId first_id(const Making& making);
  void begin(const Making& making, const UniqueId& id);
  Status settle(Status status, Clock::time_point end = Clock::time_point::max());
  template <class... P>
  void run(const FoundFunction<P...>& function, std::type_identity_t<P>... arguments);

  class Group;
  void scatter(const Operation& o);
  void gather(const Operation& o);
  void all_to_all(const Operation& o, const int64_t* to, const int64_t* from);
  void send(char* from, int64_t bytes, int rank, nccl::Stream stream) {
    if (bytes > 0) run(f().send, from, static_cast<size_t>(bytes), Type::kUInt8, rank, comm_, stream);
  }
  void recv(char* to, int64_t bytes, int rank, nccl::Stream stream) {
    if (bytes > 0) run(f().recv, to, static_cast<size_t>(bytes), Type::kUInt8, rank, comm_, stream);
  }
  /// Of a pair's member, in this communicator.
  int rank_of(const Operation& o, size_t member) const {
    return static_cast<int>(std::ranges::find(members_, o.workers.at(member)) - members_.begin());
  }
  void copy_own(char* to, const char* from, int64_t bytes, nccl::Stream stream) {
    if (bytes > 0 && to != from) device_api(device_).copy(to, from, static_cast<size_t>(bytes), device_, device_, stream);
  }

  const Library& library_;
  const Device device_;
  const int size_;
  const DataPlane& plane_;
  const std::vector<int> members_;  // by rank
  int rank_ = 0;
  Comm comm_ = nullptr;
};

UniqueId NcclCommunicator::first_id(const Making& making) {
  rank_ = static_cast<int>(std::ranges::find(making.members, making.plane.worker) - making.members.begin());
  Progress mine;
  try {
    device_api(device_).streams()->set_device(device_.id);
    mine.is_on(device_);
    device_api(device_).streams()->trim(device_.id);
  } catch (const TransportError&) {
    throw;
  } catch (const std::exception& error) {
    mine.fail(error.what());
  }
  if (rank_ == 0)
    if (const Status status = f().get_unique_id.call(&mine.id); status != kSuccess)
      mine.fail(fmt::format("{} on {}", library_.describe(f().get_unique_id.name, status, nullptr), host_name()));
  const auto all = exchange(making, mine);
  check_gpus(making, all);
  return all.front().id;
}

/// No member waits inside NCCL: it would not hear that another one has failed.
void NcclCommunicator::begin(const Making& making, const UniqueId& id) {
  Config config;
  config.blocking = 0;
  // those of all members of a GPU, and of all communicators, run at once, or wait for each other for ever
  if (settings().allow_shared_device) config.max_ctas = 4;
  Progress mine;
  Status status = f().init_rank.call(&comm_, size_, id, rank_, &config);
  const auto end = Clock::now() + std::chrono::seconds(settings().timeout_s);
  try {
    for (auto round = 1ms;; round = std::min<std::chrono::milliseconds>(2 * round, 100ms)) {
      for (const auto pause = Clock::now() + round; status == kInProgress && Clock::now() < pause;) {
        std::this_thread::sleep_for(100us);
        if (const Status failed = f().async_error.call(comm_, &status); failed != kSuccess) status = failed;
      }
      if (status == kSuccess) mine.state = Progress::State::kDone;
      else if (status != kInProgress)
        mine.fail(
            fmt::format("{} on {}, {}", library_.describe(f().init_rank.name, status, comm_), host_name(), to_string(device_)));
      else if (Clock::now() > end)
        mine.fail(fmt::format("{} has not ended after {} s", f().init_rank.name, settings().timeout_s));
      const auto all = exchange(making, mine);
      if (std::ranges::all_of(all, [](const Progress& p) { return p.state == Progress::State::kDone; })) return;
    }
  } catch (...) {
    abort();
    throw;
  }
}

/// A call of a communicator that does not block may end later: NCCL starts each collective in a thread of its own, and the first
/// ones connect, for which other members have to come. What tells that one won't come is check_device().
Status NcclCommunicator::settle(Status status, Clock::time_point end) {
  const auto start = Clock::now();
  while (status == kInProgress && Clock::now() < end) {
    std::this_thread::yield();
    plane_.check_device(Clock::now() - start > kStarting);
    if (const Status failed = f().async_error.call(comm_, &status); failed != kSuccess)
      throw SystemError(library_.describe(f().async_error.name, failed, comm_));
  }
  return status;
}

template <class... P>
void NcclCommunicator::run(const FoundFunction<P...>& function, std::type_identity_t<P>... arguments) {
  if (const Status status = settle(function.call(arguments...)); status != kSuccess)
    throw SystemError(library_.describe(function.name, status, comm_));
}

/// Calls that begin together. This thread's.
class NcclCommunicator::Group {
 public:
  explicit Group(NcclCommunicator& owner) : owner_(owner) { owner.run(owner.f().group_start); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (is_open_) owner_.f().group_end.call();
  }
  void end() {
    is_open_ = false;
    owner_.run(owner_.f().group_end);
  }

 private:
  NcclCommunicator& owner_;
  bool is_open_ = true;
};

void NcclCommunicator::start(const Operation& o) {
  if (!comm_) throw SystemError("the communicator was aborted");
  device_api(device_).streams()->set_device(device_.id);
  const auto bytes = [](Buffer buffer) { return static_cast<size_t>(buffer.size_bytes()); };
  const auto reduced = [&] { return elements(o.dst.dtype).value(); };
  const auto count = [&] { return static_cast<size_t>(o.dst.count * reduced().each); };
  switch (o.op) {
    case CollectiveOp::kAllreduce:
      if (o.dst.count > 0) run(f().all_reduce, o.src.data, o.dst.data, count(), reduced().type, op_of(o.reduce), comm_, o.stream);
      return;
    case CollectiveOp::kReduceScatter:
      if (o.dst.count > 0)
        run(f().reduce_scatter, o.src.data, o.dst.data, count(), reduced().type, op_of(o.reduce), comm_, o.stream);
      return;
    case CollectiveOp::kAllgather:
      if (o.src.count > 0) run(f().all_gather, o.src.data, o.dst.data, bytes(o.src), Type::kUInt8, comm_, o.stream);
      return;
    case CollectiveOp::kBroadcast:
      if (o.dst.count > 0)
        run(f().broadcast, o.rank == o.root ? o.src.data : o.dst.data, o.dst.data, bytes(o.dst), Type::kUInt8, o.root, comm_,
            o.stream);
      return;
    case CollectiveOp::kScatter: return scatter(o);
    case CollectiveOp::kGather: return gather(o);
    case CollectiveOp::kAllToAll: {
      if (o.src.count == 0) return;
      if (f().all_to_all.call)
        return run(f().all_to_all, o.src.data, o.dst.data, bytes(o.src) / static_cast<size_t>(size_), Type::kUInt8, comm_,
                   o.stream);
      const std::vector<int64_t> parts(static_cast<size_t>(size_), o.src.count / size_);
      return all_to_all(o, parts.data(), parts.data());
    }
    case CollectiveOp::kAllToAllV: return all_to_all(o, o.counts.data(), o.counts.data() + size_);
    case CollectiveOp::kSendRecv:
      return o.rank == 0 ? send(o.src.at(0), o.src.size_bytes(), rank_of(o, 1), o.stream)
                         : recv(o.dst.at(0), o.dst.size_bytes(), rank_of(o, 0), o.stream);
    case CollectiveOp::kExchange:
    case CollectiveOp::kBarrier:
    case CollectiveOp::kSplit: return;
  }
}

// A member's own part is copied before the group begins: a group that is not complete must not be launched.

void NcclCommunicator::scatter(const Operation& o) {
  if (f().scatter.call && all_equal(o.counts)) {
    if (o.dst.count > 0)
      run(f().scatter, o.src.data, o.dst.data, static_cast<size_t>(o.dst.size_bytes()), Type::kUInt8, o.root, comm_, o.stream);
    return;
  }
  const int64_t item = o.src.dtype.size_bytes();
  if (o.rank == o.root) copy_own(o.dst.at(0), o.src.at(before(o.counts.data(), o.rank)), o.dst.size_bytes(), o.stream);
  Group group(*this);
  if (o.rank != o.root) recv(o.dst.at(0), o.dst.size_bytes(), o.root, o.stream);
  for (int64_t r = 0, at = 0; o.rank == o.root && r < size_; at += o.counts[static_cast<size_t>(r++)])
    if (r != o.rank) send(o.src.at(at), o.counts[static_cast<size_t>(r)] * item, static_cast<int>(r), o.stream);
  group.end();
}

void NcclCommunicator::gather(const Operation& o) {
  if (f().gather.call && all_equal(o.counts)) {
    if (o.src.count > 0)
      run(f().gather, o.src.data, o.dst.data, static_cast<size_t>(o.src.size_bytes()), Type::kUInt8, o.root, comm_, o.stream);
    return;
  }
  const int64_t item = o.dst.dtype.size_bytes();
  if (o.rank == o.root) copy_own(o.dst.at(before(o.counts.data(), o.rank)), o.src.at(0), o.src.size_bytes(), o.stream);
  Group group(*this);
  if (o.rank != o.root) send(o.src.at(0), o.src.size_bytes(), o.root, o.stream);
  for (int64_t r = 0, at = 0; o.rank == o.root && r < size_; at += o.counts[static_cast<size_t>(r++)])
    if (r != o.rank) recv(o.dst.at(at), o.counts[static_cast<size_t>(r)] * item, static_cast<int>(r), o.stream);
  group.end();
}

void NcclCommunicator::all_to_all(const Operation& o, const int64_t* to, const int64_t* from) {
  const int64_t item = o.src.data ? o.src.dtype.size_bytes() : o.dst.dtype.size_bytes();
  copy_own(o.dst.at(before(from, o.rank)), o.src.at(before(to, o.rank)), to[o.rank] * item, o.stream);
  Group group(*this);
  for (int64_t r = 0, at = 0; r < size_; at += to[r++])
    if (r != o.rank) send(o.src.at(at), to[r] * item, static_cast<int>(r), o.stream);
  for (int64_t r = 0, at = 0; r < size_; at += from[r++])
    if (r != o.rank) recv(o.dst.at(at), from[r] * item, static_cast<int>(r), o.stream);
  group.end();
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const Making& making) { return std::make_unique<NcclCommunicator>(making); }

void check_nccl(int32_t device_type) { Library::of(device_type); }

bool nccl_reduces(DType dtype, ReduceOp op) {
  return can_reduce(dtype, op) && elements(dtype) && !(dtype.code == dl::kComplex && op == ReduceOp::kProd);
}

}  // namespace tutti::detail
