#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda/abi.h"
#include "gpu/standin/standin.h"

#ifdef STANDIN_HIP
#define NAME(cuda, hip) hip
#else
#define NAME(cuda, hip) cuda
#endif
#define STANDIN(cuda, hip) extern "C" [[gnu::visibility("default")]] Status NAME(cuda, hip)
/// Every function begins with this.
#define ENTER() \
  if (const Status said = enter(__func__); said != kSuccess) return said

namespace standin {
namespace {

using namespace tutti::detail::gpu;
constexpr Status kInvalidValue = 1, kNotFound = 500;

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

struct Device;

/// What an event stands for since it was last recorded.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  void set() {
    const std::lock_guard lock(mutex);
    is_done = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_done; });
  }
};

struct Queue {
  explicit Queue(Device& of, uint64_t seed) : device(of), random(seed) {}
  Device& device;
  std::mt19937_64 random;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<Status()>> work;
  bool ends = false;
  size_t freed_bytes = 0;  // by work that is not done yet: what comes later on this stream may have it
  void add(std::function<Status()> one) {
    const std::lock_guard lock(mutex);
    work.push_back(std::move(one));
    changed.notify_all();
  }
};

/// A piece of device memory, mapped twice.
struct Block {
  char* hidden;   // what programs hold: neither to be read nor written
  char* visible;  // what work uses
  size_t size;
  Device* device;
  bool is_live;  // from the work that allocates to the work that frees
};

struct Device {
  Device(int which, size_t number) : physical(which), id(static_cast<int>(number)) {}
  const int physical;  // of the machine
  const int id;        // as this process counts them
  std::atomic<Status> sticky{kSuccess};
  size_t used = 0, kept = 0;  // kept: the most that was used since the pool was trimmed
  std::shared_ptr<Queue> default_queue = nullptr;
};
struct Pool {
  Device* device;
  unsigned long long threshold = 0;
};
struct Recorded {
  Device* device;
  std::shared_ptr<Mark> mark = nullptr;
};
struct Failure {
  std::string function;
  uint64_t use;
  Status status;
};

/// All of the driver's state.
struct State {
  std::recursive_mutex mutex;
  std::deque<Device> devices;
  std::map<char*, Block> blocks;  // by the hidden address; freed ones stay for a while, so that no other is there
  std::deque<char*> freed;
  std::map<void*, std::shared_ptr<Queue>> streams;
  std::map<void*, Device*> destroyed_streams;  // they do what they were given before
  std::map<void*, Recorded> events;
  std::set<Pool*> pools;
  uint64_t seed = static_cast<uint64_t>(setting("STANDIN_SEED", 1)), made = 0;
  std::map<std::string, uint64_t, std::less<>> uses;
  std::vector<Failure> failures;
  bool is_initialized = false;

  State() {
    const char* text = std::getenv("STANDIN_FAIL");
    for (std::string_view rest = text ? text : ""; !rest.empty();) {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      const size_t first = one.find(':'), second = one.find(':', first + 1);
      failures.push_back({std::string(one.substr(0, first)), std::stoull(std::string(one.substr(first + 1))),
                          std::stoi(std::string(one.substr(second + 1)))});
    }
    const char* chosen = std::getenv(NAME("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"));
    const auto there = static_cast<int>(setting("STANDIN_DEVICES", 4));
    if (!chosen)
      for (int id = 0; id < there; ++id) devices.emplace_back(id, devices.size());
    for (std::string_view rest = chosen ? chosen : ""; !rest.empty();) {
      const std::string one(rest.substr(0, rest.find(',')));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      if (std::atoi(one.c_str()) >= there) return;  // it ends at the first that is none, as CUDA's does
      devices.emplace_back(std::atoi(one.c_str()), devices.size());
    }
  }
};
State& state() {
  static auto& one = *new State;
  return one;
}
using Lock = std::lock_guard<std::recursive_mutex>;

thread_local Device* current = nullptr;

Status enter(const char* function) {
  if (const int status = injected(function)) return status;
  return current ? current->sticky.load() : kSuccess;
}

void serve(const std::shared_ptr<Queue>& queue) {
  for (std::unique_lock lock(queue->mutex);;) {
    queue->changed.wait(lock, [&] { return queue->ends || !queue->work.empty(); });
    if (queue->work.empty()) return;
    std::function<Status()> work = std::move(queue->work.front());
    queue->work.pop_front();
    lock.unlock();
    if (queue->random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(queue->random() % 1000));
    if (const Status failed = work(); failed != kSuccess) {
      Status none = kSuccess;
      queue->device.sticky.compare_exchange_strong(none, failed);
    }
    work = nullptr;
    lock.lock();
  }
}

std::shared_ptr<Queue> make_queue(Device& device) {
  auto queue = std::make_shared<Queue>(device, state().seed + ++state().made);
  std::thread([queue] { serve(queue); }).detach();
  return queue;
}

/// Null: no such stream.
std::shared_ptr<Queue> find_stream(void* stream) {
  const Lock lock(state().mutex);
  if (reinterpret_cast<uintptr_t>(stream) <= 2) {  // CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
    if (!current) return nullptr;
    if (!current->default_queue) current->default_queue = make_queue(*current);
    return current->default_queue;
  }
  const auto it = state().streams.find(stream);
  return it == state().streams.end() ? nullptr : it->second;
}

Block* find_block(const void* memory) {
  auto it = state().blocks.upper_bound(static_cast<char*>(const_cast<void*>(memory)));
  if (it == state().blocks.begin()) return nullptr;
  Block& block = std::prev(it)->second;
  return memory < block.hidden + block.size ? &block : nullptr;
}

char* reach_on(const Device& device, const void* memory, size_t size_bytes) {
  const Lock lock(state().mutex);
  Block* block = find_block(memory);
  if (!block || !block->is_live || block->device != &device) return nullptr;
  const size_t at = static_cast<size_t>(static_cast<const char*>(memory) - block->hidden);
  return size_bytes <= block->size - at ? block->visible + at : nullptr;
}

Status move(char* to, const char* from, size_t size_bytes) {
  if (!to || !from) return kIllegalAddress;
  std::memmove(to, from, size_bytes);
  return kSuccess;
}

}  // namespace

void enqueue(Stream stream, std::function<int()> work) { find_stream(stream)->add(std::move(work)); }
char* reach(Stream stream, const void* memory, size_t size_bytes) {
  if (const auto queue = find_stream(stream)) return reach_on(queue->device, memory, size_bytes);
  const Lock lock(state().mutex);
  return reach_on(*state().destroyed_streams.at(stream), memory, size_bytes);
}
void synchronize(int id) {
  const auto left = std::make_shared<std::atomic<size_t>>(0);
  Device* device = nullptr;
  {
    const Lock lock(state().mutex);  // no stream is destroyed meanwhile
    device = &state().devices[static_cast<size_t>(id)];
    for (const auto& [stream, queue] : state().streams)
      if (&queue->device == device) ++*left, queue->add([left] { return --*left, kSuccess; });
  }
  while (*left > 0 && device->sticky == kSuccess) std::this_thread::sleep_for(std::chrono::microseconds(50));
}
bool is_stream(Stream stream) { return find_stream(stream) != nullptr; }
int current_device() { return current ? current->id : -1; }
int device_of(Stream stream) { return find_stream(stream)->device.id; }
int physical_device(int id) { return state().devices[static_cast<size_t>(id)].physical; }
int device_count() { return static_cast<int>(state().devices.size()); }

bool has_room(int id, size_t size_bytes) {
  const Lock lock(state().mutex);
  return state().devices[static_cast<size_t>(id)].kept + size_bytes <= static_cast<size_t>(setting("STANDIN_MEMORY", 1 << 30));
}

int injected(const char* function) {
  const Lock lock(state().mutex);
  const uint64_t use = ++state().uses[function];
  for (const Failure& failure : state().failures)
    if (failure.function == function && failure.use == use) return failure.status;
  return 0;
}

}  // namespace standin

using namespace standin;  // NOLINT: the functions of the driver are nobody's

STANDIN(cuInit, hipInit)(unsigned) {
  ENTER();
  state().is_initialized = true;
  return state().devices.empty() ? kNoDevice : kSuccess;
}
STANDIN(cuDriverGetVersion, hipDriverGetVersion)(int* version) {
  ENTER();
  *version = static_cast<int>(setting("STANDIN_VERSION", 13000));
  return kSuccess;
}
STANDIN(cuGetErrorName, hipDrvGetErrorName)(Status status, const char** name) {
  switch (status) {
    case kInvalidValue: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case kOutOfMemory: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case kNotInitialized: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
    case kNoDevice: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case kInvalidContext: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case kInvalidHandle: *name = "CUDA_ERROR_INVALID_HANDLE"; break;
    case kIllegalAddress: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case kLaunchFailed: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
    default: *name = nullptr; return kInvalidValue;
  }
  return kSuccess;
}
STANDIN(cuGetErrorString, hipDrvGetErrorString)(Status, const char** text) {
  *text = "a stand-in's text";
  return kSuccess;
}
STANDIN(cuDeviceGetCount, hipGetDeviceCount)(int* count) {
  ENTER();
  if (!state().is_initialized) return kNotInitialized;
  *count = device_count();
  return kSuccess;
}
STANDIN(cuDeviceGet, hipDeviceGet)(int* device, int id) {
  ENTER();
  if (!state().is_initialized) return kNotInitialized;
  if (id < 0 || id >= device_count()) return kInvalidDevice;
  *device = id;
  return kSuccess;
}
STANDIN(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char* id, int size, int device) {
  ENTER();
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  std::snprintf(id, static_cast<size_t>(size), "0000:%02X:00.0", 1 + physical_device(device));  // as the driver writes it
  return kSuccess;
}
STANDIN(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)(int* can, int device, int peer) {
  ENTER();
  if (device < 0 || device >= device_count() || peer < 0 || peer >= device_count()) return kInvalidDevice;
  *can = device != peer;
  return kSuccess;
}
STANDIN(cuDevicePrimaryCtxRetain, hipDevicePrimaryCtxRetain)(Handle* context, int device) {
  ENTER();
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  *context = &state().devices[static_cast<size_t>(device)];
  return kSuccess;
}
STANDIN(cuCtxGetCurrent, hipCtxGetCurrent)(Handle* context) {
  if (const int status = injected(__func__)) return status;
  *context = current;
  return kSuccess;
}
STANDIN(cuCtxSetCurrent, hipCtxSetCurrent)(Handle context) {
  if (const int status = injected(__func__)) return status;
  current = static_cast<Device*>(context);
  return kSuccess;
}
STANDIN(cuMemGetInfo, hipMemGetInfo)(size_t* free, size_t* total) {
  ENTER();
  if (!current) return kInvalidContext;
  const Lock lock(state().mutex);
  *total = static_cast<size_t>(setting("STANDIN_MEMORY", 1 << 30));
  *free = *total - std::min(*total, current->used);
  return kSuccess;
}
STANDIN(cuMemPoolCreate, hipMemPoolCreate)(Handle* pool, const PoolProperties* properties) {
  ENTER();
  if (properties->allocation_type != kPinned || properties->location.type != kOnDevice) return kInvalidValue;
  if (properties->location.id < 0 || properties->location.id >= device_count()) return kInvalidDevice;
  const Lock lock(state().mutex);
  *pool = *state().pools.insert(new Pool{&state().devices[static_cast<size_t>(properties->location.id)]}).first;
  return kSuccess;
}
STANDIN(cuMemPoolSetAttribute, hipMemPoolSetAttribute)(Handle pool, int attribute, void* value) {
  ENTER();
  const Lock lock(state().mutex);
  if (!state().pools.contains(static_cast<Pool*>(pool))) return kInvalidValue;
  if (attribute == kInternalDependencies) return kSuccess;
  if (attribute != kReleaseThreshold) return kInvalidValue;
  std::memcpy(&static_cast<Pool*>(pool)->threshold, value, sizeof(unsigned long long));
  return kSuccess;
}
STANDIN(cuMemPoolGetAttribute, hipMemPoolGetAttribute)(Handle pool, int attribute, void* value) {
  ENTER();
  const Lock lock(state().mutex);
  if (!state().pools.contains(static_cast<Pool*>(pool)) || (attribute != kReservedNow && attribute != kUsedNow))
    return kInvalidValue;
  const unsigned long long used = static_cast<Pool*>(pool)->device->used;
  std::memcpy(value, &used, sizeof used);
  return kSuccess;
}
STANDIN(cuMemPoolSetAccess, hipMemPoolSetAccess)(Handle pool, const Access* access, size_t count) {
  ENTER();
  const Lock lock(state().mutex);
  if (!state().pools.contains(static_cast<Pool*>(pool)) || count != 1) return kInvalidValue;
  return access->location.type == kOnDevice && access->flags == kReadWrite ? kSuccess : kInvalidValue;
}
STANDIN(cuMemPoolTrimTo, hipMemPoolTrimTo)(Handle pool, size_t) {
  ENTER();
  const Lock lock(state().mutex);
  if (!state().pools.contains(static_cast<Pool*>(pool))) return kInvalidValue;
  static_cast<Pool*>(pool)->device->kept = static_cast<Pool*>(pool)->device->used;
  return kSuccess;
}
STANDIN(cuMemAllocFromPoolAsync, hipMallocFromPoolAsync)(void** memory, size_t size_bytes, Handle pool, Handle stream) {
  ENTER();
  if (!current) return kInvalidContext;
  const Lock lock(state().mutex);
  const auto queue = find_stream(stream);
  if (!queue) return kInvalidHandle;
  if (size_bytes == 0 || !state().pools.contains(static_cast<Pool*>(pool))) return kInvalidValue;
  Device& device = *static_cast<Pool*>(pool)->device;
  if (&queue->device != &device) return kInvalidContext;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), size = (size_bytes + page - 1) / page * page;
  if (device.used + size > static_cast<size_t>(setting("STANDIN_MEMORY", 1 << 30)) + queue->freed_bytes) return kOutOfMemory;
  const int fd = memfd_create("standin", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) return kOutOfMemory;
  void* hidden = mmap(nullptr, size, PROT_NONE, MAP_SHARED, fd, 0);
  void* visible = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (hidden == MAP_FAILED || visible == MAP_FAILED) return kOutOfMemory;
  std::memset(visible, 0x5a, std::min(size, size_t{16} << 20));  // junk; of a large one not all is touched
  auto* address = static_cast<char*>(hidden);
  state().blocks[address] = {address, static_cast<char*>(visible), size, &device, false};
  device.used += size;
  device.kept = std::max(device.kept, device.used);
  queue->add([address] {
    const Lock again(state().mutex);
    state().blocks.at(address).is_live = true;
    return kSuccess;
  });
  *memory = hidden;
  return kSuccess;
}
STANDIN(cuMemFreeAsync, hipFreeAsync)(void* memory, Handle stream) {
  ENTER();
  const Lock lock(state().mutex);
  const auto queue = find_stream(stream);
  if (!queue) return stream ? kInvalidHandle : kInvalidContext;
  const auto it = state().blocks.find(static_cast<char*>(memory));
  if (it == state().blocks.end()) return kInvalidValue;
  if (&queue->device != it->second.device) return kInvalidContext;
  queue->freed_bytes += it->second.size;
  queue->add([address = it->first, queue] {
    const Lock again(state().mutex);
    Block& block = state().blocks.at(address);
    if (!block.is_live) return kIllegalAddress;  // freed twice, or before it was there
    block.is_live = false;
    block.device->used -= block.size;
    queue->freed_bytes -= block.size;
    munmap(block.visible, block.size);
    state().freed.push_back(address);
    if (state().freed.size() <= 1000) return kSuccess;
    munmap(state().freed.front(), state().blocks.at(state().freed.front()).size);
    state().blocks.erase(state().freed.front());
    state().freed.pop_front();
    return kSuccess;
  });
  return kSuccess;
}
STANDIN(cuMemHostAlloc, hipHostMalloc)(void** memory, size_t size_bytes, unsigned) {
  ENTER();
  if (!current) return kInvalidContext;
  *memory = std::malloc(size_bytes);
  return *memory ? kSuccess : kOutOfMemory;
}

namespace {

/// A copy on a stream. Host memory is looked at when the copy's turn comes: a real driver may do so, too.
template <class To, class From>
Status copy(Handle stream, To to, From from, size_t size_bytes) {
  if (!current) return kInvalidContext;
  const auto queue = find_stream(stream);
  if (!queue) return kInvalidHandle;
  queue->add([=] { return move(to(queue->device), from(queue->device), size_bytes); });
  return kSuccess;
}
auto on_device(const void* memory, size_t size_bytes) {
  return [=](const Device& device) { return reach_on(device, memory, size_bytes); };
}
auto on_host(const void* memory) {
  return [=](const Device&) { return static_cast<char*>(const_cast<void*>(memory)); };
}

}  // namespace

STANDIN(cuMemcpyHtoDAsync, hipMemcpyHtoDAsync)(void* to, const void* from, size_t size_bytes, Handle stream) {
  ENTER();
  return copy(stream, on_device(to, size_bytes), on_host(from), size_bytes);
}
STANDIN(cuMemcpyDtoHAsync, hipMemcpyDtoHAsync)(void* to, void* from, size_t size_bytes, Handle stream) {
  ENTER();
  return copy(stream, on_host(to), on_device(from, size_bytes), size_bytes);
}
STANDIN(cuMemcpyDtoDAsync, hipMemcpyDtoDAsync)(void* to, void* from, size_t size_bytes, Handle stream) {
  ENTER();
  return copy(stream, on_device(to, size_bytes), on_device(from, size_bytes), size_bytes);
}
#ifdef STANDIN_HIP
STANDIN(, hipMemcpyPeerAsync)(void* to, int to_id, const void* from, int from_id, size_t size_bytes, Handle stream) {
  ENTER();
  const Device *to_device = &state().devices[static_cast<size_t>(to_id)],
               *from_device = &state().devices[static_cast<size_t>(from_id)];
#else
STANDIN(cuMemcpyPeerAsync, )(void* to, Handle to_context, void* from, Handle from_context, size_t size_bytes, Handle stream) {
  ENTER();
  const auto *to_device = static_cast<Device*>(to_context), *from_device = static_cast<Device*>(from_context);
#endif
  return copy(
      stream, [=](const Device&) { return reach_on(*to_device, to, size_bytes); },
      [=](const Device&) { return reach_on(*from_device, from, size_bytes); }, size_bytes);
}
STANDIN(cuStreamCreate, hipStreamCreateWithFlags)(Handle* stream, unsigned) {
  ENTER();
  if (!current) return kInvalidContext;
  const Lock lock(state().mutex);
  const auto queue = make_queue(*current);
  state().streams[queue.get()] = queue;
  *stream = queue.get();
  return kSuccess;
}
STANDIN(cuStreamDestroy, hipStreamDestroy)(Handle stream) {
  ENTER();
  const Lock lock(state().mutex);
  const auto it = state().streams.find(stream);
  if (it == state().streams.end()) return kInvalidHandle;
  const auto queue = it->second;
  state().streams.erase(it);
  state().destroyed_streams[stream] = &queue->device;
  const std::lock_guard inner(queue->mutex);
  queue->ends = true;
  queue->changed.notify_all();
  return kSuccess;
}
STANDIN(cuStreamWaitEvent, hipStreamWaitEvent)(Handle stream, Handle event, unsigned) {
  ENTER();
  const Lock lock(state().mutex);
  const auto queue = find_stream(stream);
  const auto it = state().events.find(event);
  if (!queue || it == state().events.end()) return kInvalidHandle;
  if (const auto mark = it->second.mark)
    queue->add([mark] {
      mark->wait();
      return kSuccess;
    });
  return kSuccess;
}
STANDIN(cuEventCreate, hipEventCreateWithFlags)(Handle* event, unsigned) {
  ENTER();
  if (!current) return kInvalidContext;
  const Lock lock(state().mutex);
  *event = new char;
  state().events[*event] = {current};
  return kSuccess;
}
STANDIN(cuEventRecord, hipEventRecord)(Handle event, Handle stream) {
  ENTER();
  const Lock lock(state().mutex);
  const auto queue = find_stream(stream);
  const auto it = state().events.find(event);
  if (!queue || it == state().events.end()) return kInvalidHandle;
  if (it->second.device != &queue->device) return kInvalidHandle;  // as the driver says
  const auto mark = it->second.mark = std::make_shared<Mark>();
  queue->add([mark] {
    mark->set();
    return kSuccess;
  });
  return kSuccess;
}
#ifdef STANDIN_HIP
thread_local Status last_error = kSuccess;
STANDIN(, hipGetLastError)() { return std::exchange(last_error, kSuccess); }
#endif
STANDIN(cuEventQuery, hipEventQuery)(Handle event) {
  if (const int status = injected(__func__)) return status;
  const Lock lock(state().mutex);
  const auto it = state().events.find(event);
  if (it == state().events.end()) return kInvalidHandle;
  Status status = kSuccess;
  if (const auto& mark = it->second.mark) {
    const std::lock_guard inner(mark->mutex);
    status = mark->is_done ? kSuccess : kNotReady;
  }
  if (const Status sticky = it->second.device->sticky) return sticky;  // last: work before the mark may fail just now
#ifdef STANDIN_HIP
  if (status != kSuccess) last_error = status;
#endif
  return status;
}

#ifndef STANDIN_HIP
STANDIN(cuGetProcAddress_v2, )(const char* symbol, void** function, int version, unsigned long long, int* found) {
  struct Row {
    const char* name;
    void* address;
  };
  static const Row rows[] = {
  // a cast that does not compile: the declaration differs
#define TUTTI_FUNCTION(field, cuda, hip, ...) {#cuda, reinterpret_cast<void*>(static_cast<Status (*)(__VA_ARGS__)>(&::cuda))},
#define TUTTI_CUDA_FUNCTION(field, cuda, ...) TUTTI_FUNCTION(field, cuda, , __VA_ARGS__)
#define TUTTI_HIP_FUNCTION(field, hip, ...)
#include "device/cuda/functions.def"
#undef TUTTI_FUNCTION
#undef TUTTI_CUDA_FUNCTION
#undef TUTTI_HIP_FUNCTION
  };
  const char* without = std::getenv("STANDIN_WITHOUT");
  *function = nullptr;
  for (const Row& row : rows)
    if (std::string_view(row.name) == symbol && version >= 11040 && !(without && std::string_view(without) == symbol))
      *function = row.address;
  if (found) *found = *function ? 0 : 1;
  return *function ? kSuccess : kNotFound;
}
#endif

void standin_set_seed(uint64_t seed) {
  const Lock lock(state().mutex);
  state().seed = seed;
}
void standin_fail(const char* function, uint64_t use, int status) {
  const Lock lock(state().mutex);
  state().failures.clear();
  state().uses.clear();
  if (*function) state().failures.push_back({function, use, status});
}
void standin_print_uses() {
  const Lock lock(state().mutex);
  for (const auto& [function, uses] : state().uses)
    std::printf("use %s %llu\n", function.c_str(), static_cast<unsigned long long>(uses));
}
size_t standin_blocks() {
  const Lock lock(state().mutex);
  size_t live = 0;
  for (const auto& [address, block] : state().blocks) live += block.is_live;
  return live;
}
void standin_launch(void* stream, int (*kernel)(void*), void* argument) {
  enqueue(stream, [=] { return kernel(argument); });
}
void* standin_reach(void* stream, void* memory) { return reach(stream, memory, 1); }
