#pragma once

#include <cstdint>
#include <vector>

#include "agreement/rule.h"

namespace tutti::detail {

/// The verdict on a collective whose members are on several nodes, as the leaders hand it down.
struct RemoteVerdict {
  CollectiveId id;
  bool agreed = false;
  Disagreement why;
  std::vector<std::vector<int64_t>> counts;  ///< of the members, by rank
};
void encode(Writer& out, const RemoteVerdict& verdict);
RemoteVerdict decode_remote_verdict(Reader& in);

}  // namespace tutti::detail
