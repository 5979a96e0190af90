// Sessions whose workers have GPUs: TUTTI_TEST_CCL=nccl or rccl.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/session_kinds.h"

namespace tutti_test {

/// As if each node had GPUs of its own.
inline bool may_share() { return std::getenv("TUTTI_ALLOW_SHARED_DEVICE") != nullptr; }

inline bool spans_nodes() {
  const char* each = std::getenv("TUTTI_RANKS_PER_NODE");
  return workers() > (each ? std::atoi(each) : std::getenv("TUTTI_SHARED_MEMORY") ? 1 : 1000);
}

inline std::string ccl() { return std::getenv("TUTTI_TEST_CCL"); }

class Gpus : public testing::Test {
 protected:
  static tutti::Session make(int groups = 1) {
    tutti::Session s = make_session(groups);
    s.init_ccl(ccl());
    return s;
  }
  static void expect_all(const tutti::Session& s, const tutti::DRef& array, float value, int64_t n) {
    for (int w = 0; w < s.num_workers(); ++w)
      EXPECT_EQ(to_vector(array.debug_get_from_remote(w)), std::vector<float>(static_cast<size_t>(n), value)) << "worker " << w;
  }
};

}  // namespace tutti_test
