#pragma once

#include <compare>
#include <cstdint>

#include "core/wire.h"

namespace tutti::detail {

/// A failure is named by where it began.
struct Origin {
  int32_t worker = -1;
  uint64_t seq = 0;
  auto operator<=>(const Origin&) const = default;
};

inline void encode(Writer& out, const Origin& origin) {
  out.put(origin.worker);
  out.put(origin.seq);
}
inline Origin decode_origin(Reader& in) {
  Origin origin;
  origin.worker = in.get<int32_t>();
  origin.seq = in.get<uint64_t>();
  return origin;
}

/// The device communicators made since command `since` can't be used any more.
struct DeviceLoss {
  uint64_t since = 0;  ///< 0: there is no loss
  Origin origin;       ///< the worker that has seen it, and its command
  auto operator<=>(const DeviceLoss&) const = default;
};

}  // namespace tutti::detail
