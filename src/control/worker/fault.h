// Faults on request, for tests: TUTTI_FAULT. docs/errors.md tells how to write them.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

namespace tutti::detail {

struct Fault {
  enum class What { kThrow, kDelay, kStall, kExit, kSegv, kKill };
  /// A command before it runs; a collective before this worker joins it, or once all have agreed on it; a command's end before it
  /// is told.
  enum class Where { kCommand, kCollective, kTransfer, kChannel };
  What what = What::kThrow;
  Where where = Where::kCommand;
  std::optional<int> worker;               ///< none: every one
  uint64_t command = 0, every = 0;         ///< at this seq, or at its multiples
  std::chrono::milliseconds length{1000};  ///< of a delay
  int code = 3;                            ///< of an exit
};

/// "kill worker=1 command=20 in=transfer; throw every=97".  @throws UsageError
std::vector<Fault> parse_faults(std::string_view text);

/// @throws SetUpError  TUTTI_FAULT holds something else
void check_faults();

/// A worker's.
class Faults {
 public:
  explicit Faults(int worker);  ///< of the environment.  @throws UsageError
  bool any() const { return !faults_.empty(); }
  /// Whatever is due happens. `may_throw`: else what should throw here does not.
  void at(Fault::Where where, uint64_t seq, bool may_throw = true) const {
    if (!faults_.empty()) [[unlikely]]
      strike(where, seq, may_throw);
  }

 private:
  void strike(Fault::Where where, uint64_t seq, bool may_throw) const;
  std::vector<Fault> faults_;
};

}  // namespace tutti::detail
