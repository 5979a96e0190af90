#pragma once

#include <optional>
#include <utility>

#include "agreement/sequence.h"

namespace tutti::detail {

/// To a worker that waits for its device and has asked whether the members on other nodes have announced the same.
struct Answer {
  Sequence::Id id;                  ///< what was asked
  std::optional<Disagreement> why;  ///< they have not; none: all of them are there
};
void encode(Writer& out, const Answer& answer);
Answer decode_answer(Reader& in);

/// What a worker of another node has asked, until this node's workers are there, or one of them won't come.
class Question {
 public:
  explicit Question(Sequence asked) : asked_(std::move(asked)) {}
  std::optional<Answer> look(Board& board);
  uint64_t since() const { return asked_.since(); }

 private:
  Sequence asked_;
  Declined declined_;
};

}  // namespace tutti::detail
