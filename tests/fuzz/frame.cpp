// A byte ring fed in random pieces: frames come out as they went in; hostile lengths are refused without taking memory.
#include <cstdlib>

#include "control/segment/ring.h"
#include "core/wire.h"

using namespace tutti;
using namespace tutti::detail;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  alignas(64) std::byte memory[64];
  std::atomic<uint64_t> head{0}, tail{0};
  RingWriter ring(memory, &head, {&tail});
  RingReader end(memory, &head, &tail);
  FrameReader reader;
  std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(data), size);
  // the input as the raw stream
  try {
    while (!rest.empty()) {
      rest = rest.subspan(ring.write_some(rest));
      while (reader.poll(end)) {
      }
    }
  } catch (const WireError&) {
  }
  // the input as a payload
  head = tail = 0;
  ring = {memory, &head, {&tail}};
  end = {memory, &head, &tail};
  FrameReader fresh;
  const auto stream = framed(std::span(reinterpret_cast<const std::byte*>(data), size));
  rest = stream;
  std::optional<std::vector<std::byte>> frame;
  while (!frame) {
    rest = rest.subspan(ring.write_some(rest.first(std::min<size_t>(rest.size(), 1 + size % 37))));
    frame = fresh.poll(end);
  }
  if (frame->size() != size || (size && std::memcmp(frame->data(), data, size) != 0)) std::abort();
  return 0;
}
