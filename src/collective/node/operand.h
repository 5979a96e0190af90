#pragma once

#include <array>
#include <cstdint>

#include "agreement/arrival.h"

namespace tutti::detail {

/// Where the other members on the node find an operand.
struct Operand {
  enum class Where : uint8_t {
    kForeign,  ///< they can't reach it
    kHere,     ///< in the process that all members share; `offset` is its address
    kArena,    ///< in an arena of its owner's process: `fd` and `extent` name the piece, `offset` is from its begin
    kNone      ///< the member has none
  };
  Where where = Where::kForeign;
  int32_t fd = -1;
  uint64_t extent = 0, offset = 0, size_bytes = 0;
  bool in_reach() const { return where == Where::kHere || where == Where::kArena; }
};

/// As the words that go with an arrival.
std::array<uint64_t, 6> pack(const Operand& src, const Operand& dst);
Operand src_operand(const Arrival& arrival);
Operand dst_operand(const Arrival& arrival);

}  // namespace tutti::detail
