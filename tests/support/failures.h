// What a test asks of a session in which something has failed.
#pragma once

#include "support/session_kinds.h"

namespace tutti_test {

inline tutti::RemoteError error_of_sync_all(tutti::Session& s) {
  try {
    s.sync_all();
  } catch (const tutti::RemoteError& error) {
    return error;
  }
  ADD_FAILURE() << "sync_all raised nothing";
  return tutti::RemoteError({});
}

/// The session works: collectives over everyone give the right result.
inline void expect_usable(tutti::Session& s) {
  const auto n = static_cast<float>(workers());
  tutti::DRef sum = s.broadcast(floats({1, 2, 3}), {}, false), max = s.broadcast(floats({4, 5}), {}, false);
  s.allreduce(sum, sum, "sum", false);
  s.allreduce(max, max, "max", false);
  s.sync_all();
  for (int w = 0; w < workers(); ++w) {
    EXPECT_EQ(to_vector(sum.debug_get_from_remote(w)), (std::vector<float>{n, 2 * n, 3 * n}));
    EXPECT_EQ(to_vector(max.debug_get_from_remote(w)), (std::vector<float>{4, 5}));
  }
}

}  // namespace tutti_test
