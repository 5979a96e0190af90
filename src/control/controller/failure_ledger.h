#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/wire/command.h"
#include "tutti/error.h"

namespace tutti::detail {

/// What workers have reported of failures, until it is raised, and what was raised last: lost registers raise it again.
class FailureLedger {
 public:
  void add(Reply report);                 ///< kError, kConsequence
  bool is_reported(Origin origin) const;  ///< by its own worker, raised or not
  /// Workers that a consequence names, and who have not reported it themselves.
  std::set<int> silent() const;
  bool has_news() const;  ///< raise() would give something
  /// All that is to be raised now. A consequence stands for its origin if that has stayed silent. The next command acknowledges
  /// them.
  std::vector<WorkerFailure> raise();
  /// For a command: the origins that were raised, and the latest loss of a device that was reported.
  void acknowledge(Command& command);
  const WorkerFailure* raised(Origin origin) const;  ///< null: forgotten, or never raised
  std::string not_raised() const;                    ///< of all that nobody has been told, for a message of something worse

 private:
  struct Pending {
    WorkerFailure failure;
    Origin origin;  // what the acknowledgement must name
  };
  std::vector<Pending> failures_;           // not raised yet
  std::vector<Pending> consequences_;       // whose origin had not been raised when they came
  std::map<Origin, WorkerFailure> raised_;  // the last ones, shortened
  std::vector<Origin> acknowledgements_;
  DeviceLoss loss_;  // not acknowledged yet
};

}  // namespace tutti::detail
