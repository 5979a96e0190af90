#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agreement/arrival.h"

namespace tutti::detail {

/// A failed agreement. With an origin: a consequence of a failure that is reported on its own; without: a new failure.
struct Disagreement {
  std::optional<Origin> origin;
  std::string message;
};

struct Verdict {
  enum class Kind { kPending, kAgreed, kFailed } kind = Kind::kPending;
  Disagreement why;
};

/// What is known of a member at a moment.
class MemberView {
 public:
  virtual ~MemberView() = default;
  virtual std::optional<Arrival> arrival(int worker) = 0;                  ///< its latest
  virtual bool finished(int worker, uint64_t seq) = 0;                     ///< it has left command seq
  virtual std::optional<Origin> failure_at(int worker, uint64_t seq) = 0;  ///< what it failed or skipped with there
};

/// The rule. Fails when a member has left the command, or this collective, or has joined with another signature.
/// `stragglers_may_come`: on a mismatch wait for the rest, so that the message names everyone.
/// All members come to the same verdict: who has agreed stays as it arrived until all have taken note, who has left shows that.
Verdict decide(const Arrival& mine, MemberView& members, bool stragglers_may_come, std::vector<Arrival>* arrivals);

/// A member won't join a collective. `origin`: of its failure, if it has failed.
Disagreement departure(CollectiveOp op, int worker, const std::optional<Origin>& origin);
/// A member had joined a collective, or was to, and has left it. `origin`: of the failure that was the reason.
Disagreement consequence(CollectiveOp op, int worker, const Origin& origin);
/// What is wrong among those who have arrived, or an empty string. Null: one who has not.
std::string find_mismatch(const std::vector<const Arrival*>& by_rank);

}  // namespace tutti::detail
