#include "device/cuda/gpu_device.h"

#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/pci_id.h"
#include "device/cuda/gpu.h"
#include "tutti/device.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

using gpu::Driver;
using gpu::Gpu;

/// All GPUs of one driver.
class GpuDevice final : public DeviceApi, public StreamApi {
 public:
  explicit GpuDevice(int32_t type) : type_(type), driver_(Driver::of(type)), gpus_(static_cast<size_t>(driver_.device_count())) {}

  std::string_view name() const override { return type_ == dl::kCUDA ? "cuda" : "rocm"; }
  std::vector<std::string> pci_ids() override {
    const std::lock_guard lock(mutex_);
    for (auto id = static_cast<int>(pci_ids_.size()); id < driver_.device_count(); ++id) {
      int device = 0;
      char text[32] = {};
      driver_.run(id, driver_.functions.device_get, &device, id);
      driver_.run(id, driver_.functions.pci_id, text, static_cast<int>(sizeof text), device);
      pci_ids_.push_back(normal_pci_id(text));
    }
    return pci_ids_;
  }
  void* allocate(size_t size_bytes, int id, Stream stream) override { return gpu(id).allocate(size_bytes, stream); }
  void free(void* memory, size_t, int id, Stream stream) noexcept override { gpu(id).free(memory, stream); }
  void copy(void* to, const void* from, size_t size_bytes, Device to_device, Device from_device, Stream stream) override {
    if (size_bytes == 0) return;
    if (to_device.type == dl::kCPU) return gpu(from_device.id).copy_to_host(to, from, size_bytes, stream);
    Gpu& here = gpu(to_device.id);
    if (from_device.type == dl::kCPU) here.copy_to_device(to, from, size_bytes, stream);
    else if (from_device.id == to_device.id) here.copy_on_device(to, from, size_bytes, stream);
    else here.copy_from_peer(to, gpu(from_device.id), from, size_bytes, stream);
  }

  StreamApi* streams() override { return this; }
  void set_device(int id) override { gpu(id).set_current(); }
  Stream make(int id) override { return gpu(id).make_stream(); }
  void destroy(int id, Stream stream) noexcept override { gpu(id).destroy_stream(stream); }
  Event record(int id, Stream stream) override { return gpu(id).record(stream); }
  bool is_done(Event event) override { return mark(event).gpu.is_done(mark(event)); }
  void free_event(Event event) noexcept override { mark(event).gpu.give_back(&mark(event)); }
  void wait(int id, Stream stream, Event event) override { gpu(id).wait(stream, mark(event)); }
  void wait_for_all(int id, Stream stream) override { gpu(id).wait_for_all(stream); }
  void release_later(int id, const std::vector<Stream>& more, std::function<void()>&& release) noexcept override {
    gpu(id).release_later(more, std::move(release));
  }
  void release_done(int id) noexcept override {
    if (Gpu* known = gpus_[static_cast<size_t>(id)].load(std::memory_order_acquire)) known->release_done();
  }
  void trim(int id) noexcept override {
    if (Gpu* known = gpus_[static_cast<size_t>(id)].load(std::memory_order_acquire)) known->trim();
  }
  void* take_piece(int id) override { return gpu(id).take_piece(); }
  void give_back_piece(int id, void* piece, Event after) noexcept override {
    gpu(id).give_back_piece(piece, static_cast<Gpu::Mark*>(after));
  }

 private:
  static Gpu::Mark& mark(Event event) { return *static_cast<Gpu::Mark*>(event); }

  /// Made when first used: a context takes memory on its GPU.  @throws UsageError  there is none of this number
  Gpu& gpu(int id) {
    if (id < 0 || id >= driver_.device_count())
      throw UsageError(fmt::format("{}: this process may use {} of them, numbered from 0", to_string(Device{type_, id}),
                                   driver_.device_count()));
    std::atomic<Gpu*>& made = gpus_[static_cast<size_t>(id)];
    if (Gpu* known = made.load(std::memory_order_acquire)) return *known;
    const std::lock_guard lock(mutex_);
    if (!made) made = new Gpu(driver_, id);
    return *made;
  }

  const int32_t type_;
  const Driver& driver_;
  std::mutex mutex_;
  std::vector<std::atomic<Gpu*>> gpus_;
  std::vector<std::string> pci_ids_;  // as far as they are known
};

template <int32_t kType>
DeviceApi& one() {
  static auto& device = *new GpuDevice(kType);  // leaked: tensors in static objects may go later; if it throws, tried again
  return device;
}

}  // namespace

DeviceApi& gpu_device(int32_t type) { return type == dl::kCUDA ? one<dl::kCUDA>() : one<dl::kROCM>(); }

}  // namespace tutti::detail
