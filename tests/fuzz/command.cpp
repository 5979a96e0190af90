// Everything that is decoded from bytes: commands, replies, arrivals, verdicts, layouts. What decodes must encode again.
#include <cstdlib>

#include "agreement/remote_verdict.h"
#include "control/segment/segment.h"
#include "control/wire/command.h"

using namespace tutti;
using namespace tutti::detail;

template <class Decode>
static void decode_once(std::span<const std::byte> bytes, Decode decode) {
  try {
    decode(bytes);
  } catch (const WireError&) {
  } catch (const SystemError&) {  // a tensor larger than the memory
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      decode_once(bytes, [](auto b) {
        const Command c = decode_command(b);
        if (decode_command(encode(c)).seq != c.seq) std::abort();
      });
      break;
    case 1:
      decode_once(bytes, [](auto b) {
        const Reply r = decode_reply(b);
        if (decode_reply(encode(r)).worker != r.worker) std::abort();
      });
      break;
    case 2:
      decode_once(bytes, [](auto b) {
        Reader in(b);
        Writer out;
        encode(out, decode_arrival(in));
      });
      break;
    case 3:
      decode_once(bytes, [](auto b) {
        Reader in(b);
        Writer out;
        encode(out, decode_remote_verdict(in));
      });
      break;
    default:
      decode_once(bytes, [](auto b) {
        Reader in(b);
        Writer out;
        encode(out, decode_layout(in));
      });
      break;
  }
  return 0;
}
