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
  const int n = workers();
  const tutti::DRef ids = s.scatter(floats(iota(n), {n, 1}), {}, false);  // worker w has w
  const tutti::DRef sum = s.empty({1}, tutti::kFloat32), max = s.empty({1}, tutti::kFloat32);
  s.allreduce(ids, sum, "sum", false);
  s.allreduce(ids, max, "max", false);
  s.sync_all();
  for (int w = 0; w < n; ++w) {
    EXPECT_EQ(to_vector(sum.debug_get_from_remote(w)), std::vector{static_cast<float>(n * (n - 1) / 2)});
    EXPECT_EQ(to_vector(max.debug_get_from_remote(w)), std::vector{static_cast<float>(n - 1)});
  }
}

}  // namespace tutti_test
