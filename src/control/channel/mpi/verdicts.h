#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "agreement/remote_verdict.h"
#include "agreement/rule.h"
#include "core/doorbell.h"

namespace tutti::detail {

/// The root's table of arrivals from several nodes; here the verdicts on collectives across nodes fall. A plain state
/// machine: the clock is an argument, messages are the caller's.
class Verdicts final : public MemberView {
 public:
  void arrived(Arrival arrival, Clock::time_point now);
  /// A worker is done with a command that somebody waits for it in, and what it failed or skipped with there.
  void left(int worker, uint64_t seq, std::optional<Origin> origin);

  struct Fallen {
    std::vector<int32_t> workers;  // those that wait for it
    RemoteVerdict verdict;
  };
  std::vector<Fallen> fall(Clock::time_point now);
  /// Whether this worker waits in this collective, and no verdict has fallen.
  bool pending(int worker, const CollectiveId& id) const;
  /// These collectives, as far as they are pending, fail with this message.
  std::vector<Fallen> fail(const std::vector<CollectiveId>& ids, const std::string& message);
  bool anyone_waits_since(Clock::time_point time) const;
  /// Members that somebody has waited for a while: their leaders should say when they leave the command.
  std::vector<std::pair<int, uint64_t>> missing(Clock::time_point now);

 private:
  std::optional<Arrival> arrival(int worker) override;
  bool finished(int worker, uint64_t seq) override { return left_.contains({seq, worker}); }
  std::optional<Origin> failure_at(int worker, uint64_t seq) override;

  struct Waiting {
    Arrival arrival;
    Clock::time_point since;
    bool waits = false;  // no verdict yet
    bool asked = false;  // its missing peers are being watched
  };
  Fallen drop(const CollectiveId& id, bool agreed, Disagreement why);
  std::map<int, Waiting> latest_;
  std::map<std::pair<uint64_t, int>, std::optional<Origin>> left_;  // by command and worker
  bool changed_ = false;
  bool mismatch_pending_ = false;
};

}  // namespace tutti::detail
