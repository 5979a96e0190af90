#include "collective/node/operand.h"

namespace tutti::detail {
namespace {

void put(uint64_t* words, const Operand& o) {
  words[0] = static_cast<uint64_t>(o.where) | static_cast<uint64_t>(static_cast<uint32_t>(o.fd)) << 2 | o.extent << 34;
  words[1] = o.offset;
  words[2] = o.size_bytes;
}

Operand get(const uint64_t* words) {
  return {.where = static_cast<Operand::Where>(words[0] & 3),
          .fd = static_cast<int32_t>(words[0] >> 2),
          .extent = words[0] >> 34,
          .offset = words[1],
          .size_bytes = words[2]};
}

}  // namespace

std::array<uint64_t, 6> pack(const Operand& src, const Operand& dst) {
  std::array<uint64_t, 6> words;
  put(words.data(), src);
  put(words.data() + 3, dst);
  return words;
}

Operand src_operand(const Arrival& arrival) { return get(arrival.attached.words.data()); }
Operand dst_operand(const Arrival& arrival) { return get(arrival.attached.words.data() + 3); }

}  // namespace tutti::detail
