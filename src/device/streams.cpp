#include "device/streams.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "device/devices.h"
#include "tutti/error.h"
#include "tutti/worker.h"

namespace tutti::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr auto kYield = 50us;  // then naps between looks
constexpr auto kNap = 50us;

thread_local Streams own;
[[gnu::tls_model("initial-exec")]] thread_local Streams* used = nullptr;  // set by every command

}  // namespace

Streams::~Streams() {
  for (const auto& [key, stream] : made_)
    if (DeviceApi* api = find_device_api({key.first, key.second})) api->streams()->destroy(key.second, stream);
}

Stream Streams::find(Device device) const {
  const auto it = current_.find({device.type, device.id});
  return it == current_.end() ? nullptr : it->second;
}

Stream Streams::current(Device device) {
  const Stream stream = find(device);
  DeviceApi* api = find_device_api(device);
  if (!api || !api->streams()) return stream;  // its work is done at once, or it is a module's own
  const std::pair use{device, stream};
  if (std::find(used_.begin(), used_.end(), use) == used_.end()) used_.push_back(use);
  return stream;
}

Stream Streams::set(Device device, Stream stream) { return std::exchange(current_[{device.type, device.id}], stream); }

void Streams::make(Device device) {
  StreamApi* api = device_api(device).streams();
  const Key key{device.type, device.id};
  if (!api || made_.contains(key)) return;
  current_[key] = made_[key] = api->make(device.id);
}

void Streams::wrote(const Tensor& tensor) {
  if (tensor.device().type == dl::kCPU || !tensor) return;
  if (written_.size() >= prune_at_) prune();
  written_.emplace_back(tensor);
}

/// Of tensors that are gone nothing can be read; one that is written again and again counts once.
void Streams::prune() {
  std::sort(written_.begin(), written_.end());
  written_.erase(std::unique(written_.begin(), written_.end()), written_.end());
  std::erase_if(written_, [](const Tensor::Weak& tensor) { return tensor.is_gone(); });
  prune_at_ = std::max<size_t>(64, 2 * written_.size());
}

std::vector<Stream> Streams::streams_of(Device device) const {
  std::vector<Stream> streams;
  for (const auto& [of, stream] : used_)
    if (of == device) streams.push_back(stream);
  return streams;
}

std::optional<Streams::Broken> Streams::end_of(Device device, Event event) {
  std::optional<Broken> broken;
  try {
    StreamApi& streams = *device_api(device).streams();
    for (const auto since = Clock::now(); !streams.is_done(event) || (!broken && !owner_.is_settled());) {
      if (auto said = owner_.relax()) broken = std::move(said);
      if (Clock::now() - since < kYield) std::this_thread::yield();
      else std::this_thread::sleep_for(kNap);
    }
  } catch (const DeviceLost&) {
    return Broken{std::current_exception(), owner_.here(), true};
  } catch (...) {
    if (!broken) broken = Broken{std::current_exception(), owner_.here()};  // else it ends so because it is broken
  }
  return broken;
}

void Streams::await(Device device, Event event) {
  const auto broken = end_of(device, event);
  if (!broken) return;
  lose(broken->origin);
  std::rethrow_exception(broken->error);
}

void Streams::lose(Tensor::Poison origin) {
  for (const Tensor::Weak& tensor : std::exchange(written_, {})) tensor.poison(origin);
}

void Streams::finish() {
  if (used_.empty()) return;
  std::optional<Broken> broken;
  const auto keep = [&](std::optional<Broken> one) {
    if (one && (!broken || one->is_device_lost)) broken = std::move(one);
  };
  for (const auto& [device, stream] : used_) try {
      StreamApi& api = *device_api(device).streams();
      const struct Owned {
        StreamApi& api;
        Event event;
        ~Owned() { api.free_event(event); }
      } end{api, api.record(device.id, stream)};
      keep(end_of(device, end.event));
    } catch (const DeviceLost&) {
      keep(Broken{std::current_exception(), owner_.here(), true});
    } catch (...) {
      keep(Broken{std::current_exception(), owner_.here()});
    }
  for (const auto& [device, stream] : used_) device_api(device).streams()->release_done(device.id);
  used_.clear();
  if (!broken) return written_.clear();
  lose(broken->origin);
  std::rethrow_exception(broken->error);
}

void order(Device device, Stream stream, Device other_device, Stream other) {
  StreamApi& api = *device_api(device).streams();
  const Event end = api.record(other_device.id, other);
  const struct Freed {
    StreamApi& api;
    Event event;
    ~Freed() { api.free_event(event); }
  } freed{api, end};
  api.wait(device.id, stream, end);
}

void release_foreign(Device device, std::function<void()> release) noexcept {
  DeviceApi* api = find_device_api(device);
  if (!api || !api->streams()) return release();
  api->streams()->release_later(device.id, used ? used->streams_of(device) : std::vector<Stream>(), std::move(release));
}

void use_streams(Streams* streams) { used = streams; }
Streams& current_streams() { return used ? *used : own; }

Stream stream_to_free_on(Device device) { return used && device.type != dl::kCPU ? used->find(device) : nullptr; }
Stream current_stream(Device device) { return current_streams().current(device); }
Stream set_current_stream(Device device, Stream stream) { return current_streams().set(device, stream); }

}  // namespace tutti::detail

namespace tutti {

void* stream(Device device) { return detail::current_stream(device); }

void order_streams(Device device, void* first, void* then) {
  if (detail::device_api(device).streams() && first != then) detail::order(device, then, device, first);
}

void order_after_all(Device device, void* then) {
  if (detail::StreamApi* api = detail::device_api(device).streams()) api->wait_for_all(device.id, then);
}

}  // namespace tutti
