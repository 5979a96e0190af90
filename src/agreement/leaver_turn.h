#pragma once

#include "agreement/board.h"

namespace tutti::detail {

/// Workers leave a collective without success one at a time. While one decides to give up a deadlock, nobody else leaves, so what
/// it has seen stays true.
class LeaverTurn {
 public:
  explicit LeaverTurn(Board& board) : taken_(board.header().leaver), is_mine_(taken_.exchange(1) == 0) {}
  LeaverTurn(const LeaverTurn&) = delete;
  LeaverTurn& operator=(const LeaverTurn&) = delete;
  ~LeaverTurn() {
    if (is_mine_) taken_.store(0);
  }
  bool is_mine() const { return is_mine_; }
  void wait(Board& board) {  // nobody keeps it for more than a look around
    for (; !is_mine_; is_mine_ = taken_.exchange(1) == 0) {
      board.check_not_abandoned();
      yield_cpu();
    }
  }

 private:
  std::atomic<int32_t>& taken_;
  bool is_mine_;
};

}  // namespace tutti::detail
