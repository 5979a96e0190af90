// A stand-in for NCCL beside that of the driver: communicators work across threads and processes by shared memory, and match
// operations in the order of their streams, as NCCL does. What does not match waits for ever, until the communicator is aborted.
// Environment: STANDIN_NCCL_VERSION=22809; STANDIN_FAIL knows its functions, too.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective/float16.h"
#include "collective/nccl/abi.h"
#include "gpu/standin/standin.h"

#define STANDIN extern "C" [[gnu::visibility("default")]]
#define ENTER() \
  if (const int said = standin::injected(__func__)) return said

namespace {

using namespace tutti::detail::nccl;
using namespace std::chrono_literals;
constexpr Status kUnhandledCudaError = 1, kInternalError = 3;
constexpr int kIllegalAddress = 700;
using Clock = std::chrono::steady_clock;

/// What one rank passes to another one, a piece at a time.
struct Mailbox {
  std::atomic<uint32_t> is_full;
  uint32_t size;
  uint64_t tag;  // of the operation
  char data[32768];
};
struct alignas(64) Shared {
  std::atomic<int> attached, connecting;  // ranks
  std::atomic<int> devices[64];           // 1 + that of the rank
};
constexpr size_t size_of(int ranks) {
  return sizeof(Shared) + static_cast<size_t>(ranks) * static_cast<size_t>(ranks) * sizeof(Mailbox);
}

struct Communicator {
  int rank = 0, size = 0, device = 0;
  char* mapped = nullptr;
  std::atomic<Status> state{kInProgress};
  std::atomic<int> polls_left{0};            // until an operation that has begun is no longer in progress
  std::atomic<int> pending{0};               // operations on streams
  std::atomic<Clock::time_point> started{};  // until then the operation that has begun last is in progress
  std::atomic<bool> is_aborted{false}, is_finalizing{false}, is_used{false}, is_connecting{false};
  uint64_t number = 0;
  ~Communicator() {
    if (mapped) munmap(mapped, size_of(size));
  }
  /// What has begun may be in progress: the first collective until all members have begun theirs, as NCCL connects them then.
  bool is_starting() const {
    return polls_left > 0 || Clock::now() < started.load() || (is_connecting && shared().connecting < size);
  }
  Shared& shared() const { return *reinterpret_cast<Shared*>(mapped); }
  Mailbox& box(int from, int to) const { return reinterpret_cast<Mailbox*>(mapped + sizeof(Shared))[from * size + to]; }
};

std::mutex all_mutex;
std::map<Comm, std::shared_ptr<Communicator>>& all() {
  static auto& one = *new std::map<Comm, std::shared_ptr<Communicator>>;
  return one;
}
std::shared_ptr<Communicator> find(Comm comm) {
  const std::lock_guard lock(all_mutex);
  const auto it = all().find(comm);
  return it == all().end() ? nullptr : it->second;
}

thread_local Status next_async = kSuccess;
std::atomic<int> start_takes{0};  // milliseconds

struct Transfer {
  int peer;
  bool sends;
  char* memory;
  size_t size;
  size_t done = 0;
};

/// Sends and receives at once; those of one pair in their order. False: aborted.
bool exchange(const Communicator& comm, std::vector<Transfer>& transfers, uint64_t tag) {
  for (;;) {
    bool is_done = true, has_moved = false;
    std::vector<bool> sends(static_cast<size_t>(comm.size)), receives(static_cast<size_t>(comm.size));
    for (Transfer& t : transfers) {
      auto& is_taken = t.sends ? sends : receives;
      if (t.done == t.size) continue;
      is_done = false;
      if (is_taken[static_cast<size_t>(t.peer)]) continue;  // an earlier one comes first
      is_taken[static_cast<size_t>(t.peer)] = true;
      Mailbox& box = t.sends ? comm.box(comm.rank, t.peer) : comm.box(t.peer, comm.rank);
      if (t.sends == (box.is_full.load(std::memory_order_acquire) == 1)) continue;
      if (!t.sends && (box.tag != tag || box.size > t.size - t.done)) continue;  // another operation: for ever
      if (t.sends) {
        box.size = static_cast<uint32_t>(std::min(sizeof box.data, t.size - t.done));
        box.tag = tag;
        std::memcpy(box.data, t.memory + t.done, box.size);
      } else {
        std::memcpy(t.memory + t.done, box.data, box.size);
      }
      t.done += box.size;
      box.is_full.store(t.sends ? 1 : 0, std::memory_order_release);
      has_moved = true;
    }
    if (is_done) return true;
    if (comm.is_aborted) return false;
    if (!has_moved) std::this_thread::sleep_for(20us);
  }
}

using Reach = std::function<char*(const void*, size_t)>;
using Work = std::function<int(Communicator&, const Reach&)>;

/// Calls of a group that is open on this thread.
struct Grouped {
  std::shared_ptr<Communicator> comm;
  Stream stream;
  int peer;
  bool sends;
  void* memory;
  size_t size;
};
thread_local int open_groups = 0;
thread_local std::vector<Grouped> grouped;

Status check(const std::shared_ptr<Communicator>& comm, Stream stream) {
  if (!comm) return kInvalidArgument;
  if (comm->state != kSuccess || comm->is_starting() || comm->is_finalizing) return kInvalidUsage;
  if (!standin::is_stream(stream) || standin::device_of(stream) != comm->device) return kInvalidUsage;
  return kSuccess;
}

Status launch(const std::shared_ptr<Communicator>& comm, Stream stream, Work work, bool of_all = true) {
  ++comm->pending;
  const Status async = std::exchange(next_async, kSuccess);
  standin::enqueue(stream, [comm, stream, async, work = std::move(work)] {
    if (async != kSuccess) {
      comm->state = async;
      while (!comm->is_aborted) std::this_thread::sleep_for(100us);
    }
    const int status = comm->is_aborted ? 0 : work(*comm, [stream](const void* memory, size_t size) {
      return standin::reach(stream, memory, size);
    });
    --comm->pending;
    return status;
  });
  if (start_takes > 0) comm->started = Clock::now() + std::chrono::milliseconds(start_takes);
  if (!comm->is_used.exchange(true)) comm->polls_left = 2;  // to connect takes a while
  if (of_all && !comm->is_connecting.exchange(true)) ++comm->shared().connecting;
  return comm->is_starting() ? kInProgress : kSuccess;
}

size_t size_of(Type type) {
  switch (type) {
    case Type::kInt8:
    case Type::kUInt8: return 1;
    case Type::kFloat16:
    case Type::kBFloat16: return 2;
    case Type::kInt32:
    case Type::kUInt32:
    case Type::kFloat32: return 4;
    default: return 8;
  }
}
uint64_t tag_of(int kind, size_t count, Type type, int more) {
  return (static_cast<uint64_t>(kind) * 31 + static_cast<uint64_t>(type)) * 1000003 + count * 131 + static_cast<uint64_t>(more) +
         1;
}

struct Half {
  tutti::detail::Half bits;
  float wide() const { return tutti::detail::widen(bits); }
  void set(float value) { bits = tutti::detail::narrow_half(value); }
};
struct BFloat {
  tutti::detail::BFloat bits;
  float wide() const { return tutti::detail::widen(bits); }
  void set(float value) { bits = tutti::detail::narrow_bfloat(value); }
};

template <class T>
T combine(Op op, T a, T b) {
  switch (op) {
    case Op::kProd: return static_cast<T>(a * b);
    case Op::kMax: return std::max(a, b);
    case Op::kMin: return std::min(a, b);
    default: return static_cast<T>(a + b);
  }
}

template <class T>
void reduce_as(Op op, char* to, const std::vector<const char*>& from, size_t count) {
  using Wide = decltype([] {
    if constexpr (requires(T t) { t.wide(); }) return float{};
    else return T{};
  }());
  const auto load = [](const char* at, size_t i) {
    T value;
    std::memcpy(&value, at + i * sizeof value, sizeof value);
    if constexpr (requires { value.wide(); }) return value.wide();
    else return value;
  };
  for (size_t i = 0; i < count; ++i) {
    Wide sum = load(from.front(), i);
    for (size_t r = 1; r < from.size(); ++r) sum = combine<Wide>(op, sum, load(from[r], i));
    if (op == Op::kAvg) sum = static_cast<Wide>(sum / static_cast<Wide>(from.size()));
    T value;
    if constexpr (requires { value.wide(); }) value.set(sum);
    else value = sum;
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

void reduce(Type type, Op op, char* to, const std::vector<const char*>& from, size_t count) {
  switch (type) {
    case Type::kInt8: return reduce_as<int8_t>(op, to, from, count);
    case Type::kUInt8: return reduce_as<uint8_t>(op, to, from, count);
    case Type::kInt32: return reduce_as<int32_t>(op, to, from, count);
    case Type::kUInt32: return reduce_as<uint32_t>(op, to, from, count);
    case Type::kInt64: return reduce_as<int64_t>(op, to, from, count);
    case Type::kUInt64: return reduce_as<uint64_t>(op, to, from, count);
    case Type::kFloat16: return reduce_as<Half>(op, to, from, count);
    case Type::kFloat32: return reduce_as<float>(op, to, from, count);
    case Type::kFloat64: return reduce_as<double>(op, to, from, count);
    case Type::kBFloat16: return reduce_as<BFloat>(op, to, from, count);
  }
}

/// Part `r` of all ranks' src, which is `at(r)` there for rank r, reduced into dst.
int reduce_parts(Communicator& comm, char* src, char* dst, size_t part, size_t count, Type type, Op op, uint64_t tag) {
  const auto ranks = static_cast<size_t>(comm.size), own = static_cast<size_t>(comm.rank);
  const bool parts = part > 0;
  const size_t bytes = count * size_of(type);
  std::vector<std::vector<char>> theirs(ranks, std::vector<char>(bytes));
  std::vector<Transfer> transfers;
  for (size_t r = 0; r < ranks; ++r)
    if (r != own) {
      transfers.push_back({static_cast<int>(r), true, src + (parts ? r * part : 0), bytes});
      transfers.push_back({static_cast<int>(r), false, theirs[r].data(), bytes});
    }
  if (!exchange(comm, transfers, tag)) return 0;
  std::memcpy(theirs[own].data(), src + (parts ? own * part : 0), bytes);
  std::vector<const char*> from;
  for (const auto& one : theirs) from.push_back(one.data());
  reduce(type, op, dst, from, count);
  return 0;
}

/// A piece of everyone's `src` to everyone's `dst`, as the functions say: 0 bytes, where they say so.
Status move(const std::shared_ptr<Communicator>& comm, Stream stream, const void* src, size_t src_size, void* dst,
            size_t dst_size, std::function<std::pair<size_t, size_t>(int peer)> sends,
            std::function<std::pair<size_t, size_t>(int peer)> receives, uint64_t tag) {
  return launch(comm, stream, [=](Communicator& c, const Reach& reach) {
    char* from = src_size ? reach(src, src_size) : nullptr;
    char* to = dst_size ? reach(dst, dst_size) : nullptr;
    if ((src_size && !from) || (dst_size && !to)) return kIllegalAddress;
    std::vector<Transfer> transfers;
    for (int r = 0; r < c.size; ++r) {
      const auto [send_at, send_size] = sends(r);
      const auto [receive_at, receive_size] = receives(r);
      if (r == c.rank) {
        if (send_size > 0) std::memmove(to + receive_at, from + send_at, send_size);
        continue;
      }
      if (send_size > 0) transfers.push_back({r, true, from + send_at, send_size});
      if (receive_size > 0) transfers.push_back({r, false, to + receive_at, receive_size});
    }
    exchange(c, transfers, tag);
    return 0;
  });
}

Status pair_call(Comm comm, Stream stream, int peer, bool sends, void* memory, size_t size) {
  const auto found = find(comm);
  if (const Status wrong = check(found, stream); wrong != kSuccess) return wrong;
  if (peer < 0 || peer >= found->size) return kInvalidArgument;
  grouped.push_back({found, stream, peer, sends, memory, size});
  return kSuccess;
}

Status launch_group() {
  Status status = kSuccess;
  while (!grouped.empty()) {
    const auto comm = grouped.front().comm;
    const Stream stream = grouped.front().stream;
    std::vector<Grouped> mine;
    std::erase_if(grouped, [&](const Grouped& call) {
      const bool is_same = call.comm == comm && call.stream == stream;
      if (is_same) mine.push_back(call);
      return is_same;
    });
    const Status one = launch(
        comm, stream,
        [mine](Communicator& c, const Reach& reach) {
          std::vector<Transfer> transfers;
          for (const Grouped& call : mine) {
            char* memory = reach(call.memory, call.size);
            if (!memory) return kIllegalAddress;
            transfers.push_back({call.peer, call.sends, memory, call.size});
          }
          exchange(c, transfers, 0);
          return 0;
        },
        false);
    if (one != kSuccess) status = one;
  }
  return status;
}

}  // namespace

STANDIN Status ncclGetVersion(int* version) {
  const char* text = std::getenv("STANDIN_NCCL_VERSION");
  *version = text ? std::atoi(text) : 22809;
  return kSuccess;
}
STANDIN const char* ncclGetErrorString(Status status) {
  static const char* const kTexts[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
  return status >= 0 && status < 8 ? kTexts[status] : "unknown result code";
}
STANDIN const char* ncclGetLastError(Comm) { return "the stand-in says so"; }

STANDIN Status ncclGetUniqueId(UniqueId* id) {
  ENTER();
  *id = {};
  const int fd = memfd_create("standin-nccl", MFD_CLOEXEC);
  if (fd < 0) return kSystemError;
  std::snprintf(id->bytes, sizeof id->bytes, "/proc/%d/fd/%d", getpid(), fd);
  return kSuccess;
}

STANDIN Status ncclCommInitRankConfig(Comm* comm, int ranks, UniqueId id, int rank, Config* config) {
  ENTER();
  if (config->magic != Config{}.magic || config->size < sizeof(Config) || ranks > 64 || rank < 0 || rank >= ranks)
    return kInvalidArgument;
  if (standin::current_device() < 0) return kUnhandledCudaError;
  if (config->blocking != 0) return kInternalError;  // nobody asks for that
  if (!standin::has_room(standin::current_device(), 16 << 20)) return kUnhandledCudaError;
  auto made = std::make_shared<Communicator>();
  made->rank = rank;
  made->size = ranks;
  made->device = standin::current_device();
  const int fd = open(id.bytes, O_RDWR | O_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size_of(ranks))) != 0) return kSystemError;
  void* mapped = mmap(nullptr, size_of(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return kSystemError;
  made->mapped = static_cast<char*>(mapped);
  {
    const std::lock_guard lock(all_mutex);
    all()[made.get()] = made;
  }
  *comm = made.get();
  const bool few_ctas = config->max_ctas > 0 && config->max_ctas <= 8;
  const bool hosts = std::getenv("NCCL_HOSTID") != nullptr;  // as if each process had a machine of its own
  std::thread([made, id, few_ctas, hosts] {
    Shared& shared = made->shared();
    const int own_device = 1 + standin::physical_device(made->device);
    shared.devices[made->rank] = own_device;
    ++shared.attached;
    while (shared.attached < made->size && !made->is_aborted) std::this_thread::sleep_for(50us);
    int pid = 0, own = -1;
    if (made->rank == 0 && std::sscanf(id.bytes, "/proc/%d/fd/%d", &pid, &own) == 2 && pid == getpid()) close(own);
    bool shares = false;
    for (int r = 0; r < made->size; ++r) shares |= r != made->rank && shared.devices[r] == own_device;
    const bool may_share = few_ctas && (hosts || std::getenv("NCCL_MULTI_RANK_GPU_ENABLE"));  // else real ones wait for ever
    made->state = shares && !may_share ? kInvalidUsage : kSuccess;
  }).detach();
  return kInProgress;
}

STANDIN Status ncclCommGetAsyncError(Comm comm, Status* status) {
  ENTER();
  const auto found = find(comm);
  if (!found) return kInvalidArgument;
  *status = found->state;
  if (*status != kSuccess) return kSuccess;
  if (found->polls_left > 0) --found->polls_left;
  if (found->is_starting()) *status = kInProgress;
  if (found->is_finalizing && found->pending > 0) *status = kInProgress;
  return kSuccess;
}

STANDIN Status ncclCommFinalize(Comm comm) {
  ENTER();
  const auto found = find(comm);
  if (!found || found->is_finalizing) return kInvalidArgument;
  found->is_finalizing = true;
  return kInProgress;
}

STANDIN Status ncclCommDestroy(Comm comm) {
  ENTER();
  const auto found = find(comm);
  if (!found) return kInvalidArgument;
  if (!found->is_finalizing || found->pending > 0) return kInvalidUsage;
  const std::lock_guard lock(all_mutex);
  all().erase(comm);
  return kSuccess;
}

STANDIN Status ncclCommAbort(Comm comm) {
  ENTER();
  const auto found = find(comm);
  if (!found) return kInvalidArgument;
  if (standin::current_device() != found->device) return kInvalidUsage;  // NCCL would make this thread use GPU 0
  found->is_aborted = true;
  standin::synchronize(found->device);  // frees memory: work of other communicators, too
  const std::lock_guard lock(all_mutex);
  all().erase(comm);
  return kSuccess;
}

STANDIN Status ncclGroupStart() {
  ENTER();
  ++open_groups;
  return kSuccess;
}
STANDIN Status ncclGroupEnd() {
  ENTER();
  if (open_groups == 0) return kInvalidUsage;
  return --open_groups > 0 ? kSuccess : launch_group();
}
STANDIN Status ncclSend(const void* src, size_t count, Type type, int peer, Comm comm, Stream stream) {
  ENTER();
  const Status status = pair_call(comm, stream, peer, true, const_cast<void*>(src), count * size_of(type));
  return status != kSuccess || open_groups > 0 ? status : launch_group();
}
STANDIN Status ncclRecv(void* dst, size_t count, Type type, int peer, Comm comm, Stream stream) {
  ENTER();
  const Status status = pair_call(comm, stream, peer, false, dst, count * size_of(type));
  return status != kSuccess || open_groups > 0 ? status : launch_group();
}

STANDIN Status ncclAllReduce(const void* src, void* dst, size_t count, Type type, Op op, Comm comm, Stream stream) {
  ENTER();
  const auto found = find(comm);
  if (const Status wrong = check(found, stream); wrong != kSuccess) return wrong;
  return launch(found, stream, [=](Communicator& c, const Reach& reach) {
    char *from = reach(src, count * size_of(type)), *to = reach(dst, count * size_of(type));
    if (!from || !to) return kIllegalAddress;
    return reduce_parts(c, from, to, 0, count, type, op, tag_of(1, count, type, static_cast<int>(op)));
  });
}
STANDIN Status ncclReduceScatter(const void* src, void* dst, size_t count, Type type, Op op, Comm comm, Stream stream) {
  ENTER();
  const auto found = find(comm);
  if (const Status wrong = check(found, stream); wrong != kSuccess) return wrong;
  return launch(found, stream, [=](Communicator& c, const Reach& reach) {
    const size_t part = count * size_of(type);
    char *from = reach(src, part * static_cast<size_t>(c.size)), *to = reach(dst, part);
    if (!from || !to) return kIllegalAddress;
    return reduce_parts(c, from, to, part, count, type, op, tag_of(2, count, type, static_cast<int>(op)));
  });
}
STANDIN Status ncclAllGather(const void* src, void* dst, size_t count, Type type, Comm comm, Stream stream) {
  ENTER();
  const auto found = find(comm);
  if (const Status wrong = check(found, stream); wrong != kSuccess) return wrong;
  const size_t part = count * size_of(type);
  return move(
      found, stream, src, part, dst, part * static_cast<size_t>(found->size), [=](int) { return std::pair(size_t{0}, part); },
      [=](int peer) { return std::pair(static_cast<size_t>(peer) * part, part); }, tag_of(3, count, type, 0));
}
STANDIN Status ncclBroadcast(const void* src, void* dst, size_t count, Type type, int root, Comm comm, Stream stream) {
  ENTER();
  const auto found = find(comm);
  if (const Status wrong = check(found, stream); wrong != kSuccess) return wrong;
  const size_t size = count * size_of(type), none = 0;
  const bool is_root = found->rank == root;
  return move(
      found, stream, src, is_root ? size : none, dst, size, [=](int) { return std::pair(none, is_root ? size : none); },
      [=](int peer) { return std::pair(none, peer == root ? size : none); }, tag_of(4, count, type, root));
}
STANDIN Status ncclAlltoAll(const void* src, void* dst, size_t count, Type type, Comm comm, Stream stream) {
  ENTER();
  const auto found = find(comm);
  if (const Status wrong = check(found, stream); wrong != kSuccess) return wrong;
  if (src == dst) return kInvalidArgument;
  const size_t part = count * size_of(type), whole = part * static_cast<size_t>(found->size);
  const auto piece = [=](int peer) { return std::pair(static_cast<size_t>(peer) * part, part); };
  return move(found, stream, src, whole, dst, whole, piece, piece, tag_of(5, count, type, 0));
}
STANDIN Status ncclGather(const void* src, void* dst, size_t count, Type type, int root, Comm comm, Stream stream) {
  ENTER();
  const auto found = find(comm);
  if (const Status wrong = check(found, stream); wrong != kSuccess) return wrong;
  const size_t part = count * size_of(type), none = 0;
  const bool is_root = found->rank == root;
  return move(
      found, stream, src, part, dst, is_root ? part * static_cast<size_t>(found->size) : none,
      [=](int peer) { return std::pair(none, peer == root ? part : none); },
      [=](int peer) { return std::pair(static_cast<size_t>(peer) * part, is_root ? part : none); }, tag_of(6, count, type, root));
}
STANDIN Status ncclScatter(const void* src, void* dst, size_t count, Type type, int root, Comm comm, Stream stream) {
  ENTER();
  const auto found = find(comm);
  if (const Status wrong = check(found, stream); wrong != kSuccess) return wrong;
  const size_t part = count * size_of(type), none = 0;
  const bool is_root = found->rank == root;
  return move(
      found, stream, src, is_root ? part * static_cast<size_t>(found->size) : none, dst, part,
      [=](int peer) { return std::pair(static_cast<size_t>(peer) * part, is_root ? part : none); },
      [=](int peer) { return std::pair(none, peer == root ? part : none); }, tag_of(7, count, type, root));
}

/// The next collective of this thread sets its communicator's error, and is never complete.
STANDIN void standin_nccl_async(int status) { next_async = status; }
STANDIN void standin_nccl_start_takes(int milliseconds) { start_takes = milliseconds; }
