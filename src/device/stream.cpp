#include "device/stream.h"

#include <map>
#include <utility>

namespace tutti {
namespace {

thread_local std::map<std::pair<int32_t, int32_t>, void*> streams;

}  // namespace

void* current_stream(Device device) {
  auto it = streams.find({device.type, device.id});
  return it == streams.end() ? nullptr : it->second;
}
void* set_current_stream(Device device, void* stream) { return std::exchange(streams[{device.type, device.id}], stream); }

}  // namespace tutti
