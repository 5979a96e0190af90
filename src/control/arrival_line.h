#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "collective/agreement.h"

namespace tutti {

/// A worker's latest arrival in one cache line, which its peers on the node poll: enough to see that all have arrived with the
/// same signature. One writer; zeroed memory is a worker that has not arrived anywhere.
class alignas(64) ArrivalLine {
 public:
  /// The line's words of an arrival, but for where the member's counters stand.
  struct Key {
    uint64_t comm, seq, index_root, what, count;
    bool operator==(const Key&) const = default;
  };
  struct Seen {
    Key key;
    uint64_t step, taken;
    bool in_record;  ///< counts, or collectives that were left: only the worker's record tells
  };
  static Key key_of(const CollectiveId& id, const Signature& signature);

  void write(const Key& key, uint64_t step, uint64_t taken, bool in_record);
  uint64_t version() const { return version_.load(std::memory_order_seq_cst); }  ///< 0: never written
  bool read(Seen& out) const;                                                    ///< false while the writer is at it
  static Arrival arrival(const Seen& seen, int worker);                          ///< members: only itself

 private:
  std::atomic<uint64_t> version_, words_[7];  // as in SharedRecord; comm, seq, index and root, what, count, step, taken
};
static_assert(sizeof(ArrivalLine) == 64);

}  // namespace tutti
