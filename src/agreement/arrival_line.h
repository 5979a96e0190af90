#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "agreement/arrival.h"

namespace tutti::detail {

/// An arrival of a worker in one cache line, which its peers on the node poll: enough to see that all have arrived with the same
/// signature. One writer; zeroed memory is a worker that has not arrived anywhere. A worker has two that it writes in turns: who
/// goes on to the next collective leaves the one before for those who have not seen it yet.
class alignas(64) ArrivalLine {
 public:
  /// The line's words of an arrival, but for where the member's counters stand.
  struct Key {
    uint64_t comm, seq, index_root, what, count;
    bool operator==(const Key&) const = default;
  };
  struct Seen {
    Key key;
    uint64_t step;  ///< or the bytes of a small arrival, which moves no data in steps
    uint64_t taken;
    CollectiveId id() const { return {key.comm, key.seq, static_cast<uint32_t>(key.index_root >> 32)}; }
    bool in_record;  ///< counts, or collectives that were left: only the worker's record tells
  };
  static Key key_of(const CollectiveId& id, const Signature& signature);

  /// @param number  of the arrival among this worker's, from 1
  /// @param order  of the last store: seq_cst where what the writer looks at next depends on who has seen the line
  void write(uint64_t number, const Key& key, uint64_t step, uint64_t taken, bool in_record,
             std::memory_order order = std::memory_order_seq_cst);
  /// Those that stand in the place of the step. They stay as long as the arrival does.
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(&words_[kStep]); }
  uint64_t version() const {
    return version_.load(std::memory_order_seq_cst);
  }                            ///< twice the arrival's number; odd while it is written
  bool read(Seen& out) const;  ///< false while the writer is at it
  static Signature signature(const Key& key);
  static Arrival arrival(const Seen& seen, int worker);  ///< members: only itself

 private:
  static constexpr size_t kStep = 5;
  std::atomic<uint64_t> version_, words_[7];  // as in SharedRecord; comm, seq, index and root, what, count, step or bytes, taken
};
static_assert(sizeof(ArrivalLine) == 64);

}  // namespace tutti::detail
