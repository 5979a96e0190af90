#include "agreement/arrival_line.h"

namespace tutti::detail {
namespace {

constexpr uint64_t kInRecord =
    uint64_t{1} << 63;  // of `what`: op, reduce, dtype code and bits, lanes (16 bits), device type (15 bits)

}  // namespace

ArrivalLine::Key ArrivalLine::key_of(const CollectiveId& id, const Signature& s) {
  return {.comm = id.comm,
          .seq = id.seq,
          .index_root = uint64_t{id.index} << 32 | static_cast<uint32_t>(s.root),
          .what = static_cast<uint64_t>(s.op) | static_cast<uint64_t>(s.reduce) << 8 | uint64_t{s.dtype.code} << 16 |
                  uint64_t{s.dtype.bits} << 24 | uint64_t{s.dtype.lanes} << 32 |
                  static_cast<uint64_t>(s.device_type & 0x7fff) << 48,
          .count = static_cast<uint64_t>(s.count)};
}

void ArrivalLine::write(uint64_t number, const Key& key, uint64_t step, uint64_t taken, bool in_record, std::memory_order order) {
  version_.store(2 * number - 1, std::memory_order_relaxed);  // seen by all who see one of the words below
  const uint64_t words[] = {key.comm, key.seq, key.index_root, key.what | (in_record ? kInRecord : 0), key.count, step, taken};
  for (size_t i = 0; i < 7; ++i)
    words_[i].store(words[i], std::memory_order_release);  // release: never seen before the odd version
  version_.store(2 * number, order);
}

bool ArrivalLine::read(Seen& out) const {
  const uint64_t before = version();
  if (before % 2 != 0) return false;
  uint64_t words[7];
  for (size_t i = 0; i < 7; ++i) words[i] = words_[i].load(std::memory_order_acquire);  // acquire: the check below comes after
  if (version_.load(std::memory_order_relaxed) != before) return false;
  out = {.key = {words[0], words[1], words[2], words[3] & ~kInRecord, words[4]},
         .step = words[5],
         .taken = words[6],
         .in_record = (words[3] & kInRecord) != 0};
  return true;
}

Signature ArrivalLine::signature(const Key& key) {
  const auto [comm, seq, index_root, what, count] = key;
  return {.op = static_cast<CollectiveOp>(what & 0xff),
          .reduce = static_cast<ReduceOp>(what >> 8 & 0xff),
          .dtype = {static_cast<uint8_t>(what >> 16), static_cast<uint8_t>(what >> 24), static_cast<uint16_t>(what >> 32)},
          .device_type = static_cast<int32_t>(what >> 48 & 0x7fff),
          .root = static_cast<int32_t>(index_root & 0xffffffff),
          .count = static_cast<int64_t>(count)};
}

Arrival ArrivalLine::arrival(const Seen& seen, int worker) {
  Arrival a{.worker = worker, .id = seen.id(), .signature = signature(seen.key), .members = {worker}};
  a.step = seen.step;
  a.taken = seen.taken;
  return a;
}

}  // namespace tutti::detail
