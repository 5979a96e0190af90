#include "device/cuda/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "core/env.h"
#include "tutti/device.h"
#include "tutti/error.h"

namespace tutti::detail::gpu {
namespace {

struct GiveBack {
  void operator()(Gpu::Mark* mark) const noexcept { mark->gpu.give_back(mark); }
};
using Marked = std::unique_ptr<Gpu::Mark, GiveBack>;

}  // namespace

/// The thread's device, as long as this lives: a caller's own choice comes back.
class Gpu::Current {
 public:
  explicit Current(const Gpu& gpu) : gpu_(gpu) {
    gpu.driver_.run(gpu.id_, gpu.f_.context_get, &before_);
    if (before_ != gpu.context_) gpu.set_current();
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    if (before_ != gpu_.context_) gpu_.f_.context_set.call(before_);
  }

 private:
  const Gpu& gpu_;
  Handle before_ = nullptr;
};

Gpu::Gpu(const Driver& driver, int id) : driver_(driver), f_(driver.functions), id_(id) {
  int device = 0;
  driver_.run(id_, f_.device_get, &device, id);
  driver_.run(id_, f_.context_retain, &context_, device);
  const Current current(*this);
  PoolProperties properties{};
  properties.allocation_type = kPinned;
  properties.location = {kOnDevice, device};
  driver_.run(id_, f_.pool_create, &pool_, &properties);
  unsigned long long all = ~0ull;  // what is freed stays in the pool: the system would take and give it at each sync
  driver_.run(id_, f_.pool_set, pool_, kReleaseThreshold, &all);
  int none = 0;  // an allocation waits for no other stream: that one may wait for a member that does not come
  driver_.run(id_, f_.pool_set, pool_, kInternalDependencies, &none);
  for (int peer = 0; peer < driver_.device_count(); ++peer) {  // NCCL reads and writes tensors of this process's other GPUs
    int device_of_peer = 0, can = 0;
    driver_.run(id_, f_.device_get, &device_of_peer, peer);
    if (peer != id_) driver_.run(id_, f_.can_access_peer, &can, device_of_peer, device);
    const Access access{{kOnDevice, device_of_peer}, kReadWrite};
    if (can) driver_.run(id_, f_.pool_access, pool_, &access, size_t{1});
  }
  allocating_ = new_stream();
  freeing_ = new_stream();
}

Handle Gpu::new_stream() const {
  Handle stream = nullptr;
  driver_.run(id_, f_.stream_create, &stream, kNonBlocking);
  return stream;
}

std::string Gpu::used(size_t asked) const {
  size_t free = 0, total = 0;
  unsigned long long reserved = 0, used = 0;
  f_.memory_info.call(&free, &total);
  f_.pool_get.call(pool_, kReservedNow, &reserved);
  f_.pool_get.call(pool_, kUsedNow, &used);
  constexpr auto mib = [](unsigned long long bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format(
      "no memory for a tensor of {:.1f} MiB: {:.1f} of {:.1f} MiB are free, this process's tensors hold {:.1f} and keep "
      "{:.1f} for new ones; drop some, or ask for less",
      mib(asked), mib(free), mib(total), mib(used), mib(reserved - used));
}

void* Gpu::allocate(size_t size_bytes, Stream stream) {
  release_done();
  const Current current(*this);
  const Stream on = stream ? stream : allocating_;
  void* memory = nullptr;
  Status status = f_.allocate.call(&memory, size_bytes, pool_, on);
  if (status == kOutOfMemory) {  // what other streams free, and pieces of the pool that do not fit, may make room
    await_frees();
    trim();
    status = f_.allocate.call(&memory, size_bytes, pool_, on);
  }
  if (status == kOutOfMemory)
    throw SystemError(fmt::format("{} on {}: {}", to_string(Device{driver_.type(), id_}), host_name(), used(size_bytes)));
  if (status != kSuccess) driver_.fail(id_, f_.allocate.name, status);
  if (stream) return memory;
  try {
    const Marked end(record(on));
    while (!is_done(*end)) std::this_thread::yield();  // nothing but allocations is on that stream
  } catch (...) {
    free(memory, on);
    throw;
  }
  return memory;
}

void Gpu::free(void* memory, Stream stream) noexcept try {
  const Current current(*this);
  if (stream) return driver_.run(id_, f_.free, memory, stream);
  wait_for_all(freeing_);
  driver_.run(id_, f_.free, memory, freeing_);
} catch (const std::exception&) {  // the device or the process is at its end: so is the memory
}

void Gpu::wait_for_all(Stream stream) {
  const Current current(*this);
  const std::lock_guard lock(streams_mutex_);  // no stream is destroyed meanwhile
  for (const Stream other : streams_) {
    const Marked end(record(other));
    wait(stream, *end);
  }
  const Marked end(record(nullptr));  // the default stream, which is not waited for otherwise
  wait(stream, *end);
}

void Gpu::release_later(const std::vector<Stream>& more, std::function<void()>&& release) noexcept {
  release_done();
  Held held{nullptr, std::move(release)};
  try {
    wait_for_all(freeing_);
    for (const Stream stream : more) wait(freeing_, *Marked(record(stream)));
    held.end = record(freeing_);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::microseconds(100);  // what is idle ends at once
    while (!is_done(*held.end) && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  } catch (const std::exception&) {
  }
  try {
    const std::lock_guard lock(held_mutex_);
    held_.push_back(std::move(held));
  } catch (const std::exception&) {  // no memory: it goes now
  }
  release_done();
}

void Gpu::release_done() noexcept {
  for (;;) {
    Held done;
    {
      const std::lock_guard lock(held_mutex_);
      const auto at = std::ranges::find_if(held_, [&](const Held& held) { return held.end && query(*held.end) == kSuccess; });
      if (at == held_.end()) return;
      done = std::move(*at);
      held_.erase(at);
    }
    give_back(done.end);
    done.release();  // without the lock: it may come back here
  }
}

void Gpu::copy_to_device(void* to, const void* from, size_t size_bytes, Stream stream) {
  const Current current(*this);
  driver_.run(id_, f_.copy_to_device, to, from, size_bytes, stream);
}

void Gpu::copy_to_host(void* to, const void* from, size_t size_bytes, Stream stream) {
  const Current current(*this);
  driver_.run(id_, f_.copy_to_host, to, const_cast<void*>(from), size_bytes, stream);
}

void Gpu::copy_on_device(void* to, const void* from, size_t size_bytes, Stream stream) {
  const Current current(*this);
  driver_.run(id_, f_.copy_on_device, to, const_cast<void*>(from), size_bytes, stream);
}

void Gpu::copy_from_peer(void* to, const Gpu& peer, const void* from, size_t size_bytes, Stream stream) {
  const Current current(*this);
  if (f_.copy_to_peer.call)
    driver_.run(id_, f_.copy_to_peer, to, context_, const_cast<void*>(from), peer.context_, size_bytes, stream);
  else driver_.run(id_, f_.copy_to_peer_hip, to, id_, from, peer.id_, size_bytes, stream);
}

Stream Gpu::make_stream() {
  const Current current(*this);
  const Stream stream = new_stream();
  const std::lock_guard lock(streams_mutex_);
  streams_.insert(stream);
  return stream;
}

void Gpu::destroy_stream(Stream stream) noexcept {
  {
    const std::lock_guard lock(streams_mutex_);
    streams_.erase(stream);
  }
  f_.stream_destroy.call(stream);  // its work goes on
}

Gpu::Mark* Gpu::record(Stream stream) {
  const Current current(*this);
  Mark* mark = nullptr;
  {
    const std::lock_guard lock(unused_mutex_);
    if (!unused_marks_.empty()) mark = unused_marks_.back(), unused_marks_.pop_back();
  }
  if (!mark) {
    Handle event = nullptr;
    driver_.run(id_, f_.event_create, &event, kDisableTiming);
    mark = new Mark{*this, event};
  }
  Marked owned(mark);
  driver_.run(id_, f_.event_record, mark->event, stream);
  return owned.release();
}

void Gpu::give_back(Mark* mark) noexcept try {
  const std::lock_guard lock(unused_mutex_);
  unused_marks_.push_back(mark);
} catch (const std::bad_alloc&) {  // one less
}

Status Gpu::query(const Mark& mark) const {
  const Status status = f_.event_query.call(mark.event);
  if (status == kNotReady && f_.last_error.call) f_.last_error.call();  // or HIP tells the program's next look at errors of it
  return status;
}

bool Gpu::is_done(const Mark& mark) const {
  const Status status = query(mark);
  if (status != kSuccess && status != kNotReady) driver_.fail(id_, "the work on a stream", status);
  return status == kSuccess;
}

void Gpu::wait(Stream stream, const Mark& mark) const {
  const Current current(*this);  // whose default stream null is
  driver_.run(id_, f_.stream_wait, stream, mark.event, 0u);
}

/// A while: a stream may be stuck.
void Gpu::await_frees() {
  std::vector<Marked> ends;
  {
    const std::lock_guard lock(streams_mutex_);
    for (const Stream stream : streams_) ends.emplace_back(record(stream));
    ends.emplace_back(record(freeing_));
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const Marked& end : ends)
    while (!is_done(*end) && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
}

void* Gpu::take_piece() {
  {
    const std::lock_guard lock(unused_mutex_);
    for (Piece& piece : unused_pieces_) {
      if (piece.after && query(*piece.after) != kSuccess) continue;  // of one that failed: never
      const Piece mine = std::exchange(piece, unused_pieces_.back());
      unused_pieces_.pop_back();
      if (mine.after) unused_marks_.push_back(mine.after);
      return mine.memory;
    }
  }
  const Current current(*this);
  void* memory = nullptr;
  driver_.run(id_, f_.host_allocate, &memory, StreamApi::kPieceBytes, kPortable);
  const std::lock_guard lock(unused_mutex_);
  pieces_.push_back(memory);
  return memory;
}

void Gpu::give_back_piece(void* piece, Mark* after) noexcept try {
  const std::lock_guard lock(unused_mutex_);
  unused_pieces_.push_back({piece, after});
} catch (const std::bad_alloc&) {  // one less
}

}  // namespace tutti::detail::gpu
