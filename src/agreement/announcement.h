#pragma once

#include <cstdint>
#include <optional>

#include "agreement/arrival_line.h"

namespace tutti::detail {

/// A collective that its member has started without waiting for the others.
struct Announcement {
  ArrivalLine::Key key;
  uint32_t since;   ///< of the announcer's DeviceLoss::since, the low bits
  uint32_t number;  ///< among those of this communicator since then, from 1
  uint64_t chain;   ///< a hash of all up to this one

  CollectiveId id() const { return {key.comm, key.seq, static_cast<uint32_t>(key.index_root >> 32)}; }
};

}  // namespace tutti::detail
