#include "device/cpu/cpu_device.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

#include "core/arena.h"
#include "tutti/error.h"

namespace tutti::detail {
namespace {

constexpr std::align_val_t kAlignment{64};

class CpuDevice final : public DeviceApi {
 public:
  std::string_view name() const override { return "cpu"; }
  void* allocate(size_t size_bytes, int /*device_id*/, Stream) override {
    if (void* block = Arena::here().allocate(size_bytes)) return block;
    void* memory = ::operator new(size_bytes, kAlignment, std::nothrow);
    if (!memory) throw SystemError(fmt::format("no memory for a tensor of {} bytes; free others, or ask for less", size_bytes));
    return memory;
  }
  void free(void* memory, size_t size_bytes, int /*device_id*/, Stream) noexcept override {
    if (size_bytes >= Arena::kLeast && Arena::here().free(memory)) return;
    ::operator delete(memory, kAlignment);
  }
  void copy(void* to, const void* from, size_t size_bytes, Device, Device, Stream) override {
    if (size_bytes > 0) std::memmove(to, from, size_bytes);
  }
};

}  // namespace

DeviceApi& cpu_device() {
  static auto& device = *new CpuDevice;  // leaked: tensors in static objects may go later
  return device;
}

}  // namespace tutti::detail
