#pragma once

#include <cstdint>
#include <optional>

#include "agreement/arrival_line.h"

namespace tutti::detail {

/// A collective that its member has started without waiting for the others.
struct Announcement {
  ArrivalLine::Key key{};
  uint32_t since = 0;   ///< the command since which the member's communicators are made, its low bits
  uint32_t number = 0;  ///< among those of this communicator since then, from 1
  uint64_t chain = 0;   ///< a hash of all up to this one

  CollectiveId id() const { return {key.comm, key.seq, static_cast<uint32_t>(key.index_root >> 32)}; }
  Signature signature() const { return ArrivalLine::signature(key); }
  /// In a line of arrivals `step` holds since and number, `taken` the chain.
  void write(ArrivalLine& line, uint64_t version) const {
    line.write(version, key, uint64_t{since} << 32 | number, chain, false, std::memory_order_release);
  }
  static std::optional<Announcement> read(const ArrivalLine& line) {
    ArrivalLine::Seen seen{};
    if (line.version() == 0 || !line.read(seen)) return std::nullopt;
    return Announcement{seen.key, static_cast<uint32_t>(seen.step >> 32), static_cast<uint32_t>(seen.step), seen.taken};
  }
};

}  // namespace tutti::detail
