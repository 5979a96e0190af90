#include "device/stream.h"

namespace tutti {
namespace {

thread_local Streams own;
[[gnu::tls_model("initial-exec")]] thread_local Streams* used = nullptr;  // set by every command

Streams& streams() { return used ? *used : own; }

}  // namespace

void use_streams(Streams* streams) { used = streams; }

void* current_stream(Device device) {
  const auto it = streams().find({device.type, device.id});
  return it == streams().end() ? nullptr : it->second;
}

void* set_current_stream(Device device, void* stream) { return std::exchange(streams()[{device.type, device.id}], stream); }

}  // namespace tutti
