#pragma once

#include <string>
#include <vector>

#include "tutti/dtype.h"
#include "tutti/worker.h"

namespace tutti::bench {

/// Elements that repeat after a short period: quick to write and to check, computed apart from the code under test.
class Pattern {
 public:
  /// What rank's elements are, small enough to be exact in any dtype.
  static Pattern of_rank(DType dtype, int rank, bool for_reduction);
  /// What the ranks' elements give.
  static Pattern reduced(DType dtype, int size, ReduceOp op);

  void write(void* to, int64_t count, int64_t phase) const;  ///< element i is number phase + i
  int64_t count_wrong(const void* from, int64_t count, int64_t phase) const;

 private:
  template <class F>
  Pattern(DType dtype, int64_t period, F value);
  DType dtype_;
  int64_t period_, tile_;    // elements
  std::vector<char> bytes_;  // tile_ + period_ of them
};

}  // namespace tutti::bench
