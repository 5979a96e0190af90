// Recorded programs: calls on a session that are recorded once, and replayed on all workers by one command.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/session.h"

namespace tutti {

namespace detail {
class ProgramRecorder;
struct AboutProgram;
}  // namespace detail

/// A recorded program. A cheap handle; it keeps the registers that its steps use. While another program is recorded, a call of
/// this one is a step of that one.
class TUTTI_API Program : public DRef {
 public:
  Program() = default;
  /// Replays the steps once, on every worker. One value for each slot, in the order in which the slots were made: any that a call
  /// takes. The result holds what Recording::returns() names: arrays themselves, not copies.
  /// @throws UsageError  not one value for each slot; a value that can't travel
  DRef operator()(Where where = Where::current()) const { return call({}, where); }
  template <class... A>
  DRef operator()(LocatedValue first, A&&... rest) const {
    const Value values[] = {std::move(first.value), Value(std::forward<A>(rest))...};
    return call(values, first.where);
  }
  DRef call(Args values, Where where = Where::current()) const;
  /// Replays them `times` times, or until Recording::stop_when() ends it, by one command. The result holds how many iterations
  /// have begun.
  DRef repeat(int64_t times, const List& values = {}, Where where = Where::current()) const;

  const std::string& name() const;                ///< "train.py:12"
  size_t size() const;                            ///< steps
  const std::vector<std::string>& slots() const;  ///< their names

 private:
  friend class detail::ProgramRecorder;
  DRef replay(int64_t times, Args values, Where where) const;
  const detail::AboutProgram& about() const;
  std::shared_ptr<const detail::AboutProgram> about_;
};

/// A program that is being recorded, by Session::record. One that goes without finish() leaves nothing behind.
///
/// A DRef that a recorded call returns stands for what that step returns: other steps take it, and after a replay it holds what
/// the last replay left in it (before the first one: None). Once nobody has a handle to it, it holds nothing between replays, and
/// later steps may use its register.
/// Copies between the controller and worker 0, broadcast() and scatter() are steps, too: each replay reads or fills the caller's
/// array, which must not change until a sync.
class TUTTI_API Recording {
 public:
  /// A value that each replay gives: an argument of steps.
  /// @throws UsageError  there is one of that name
  DRef slot(std::string_view name = {});
  /// At the end of each iteration the slot gets the value, an array itself: what a loop carries on. All values are read before
  /// the first slot is set.  @throws UsageError  `slot` was not made by this recording
  void assign(const DRef& slot, const Value& value);
  /// A replay ends here if `flag` holds true on all workers of the session. They agree on it, so this is a collective. Of
  /// programs inside of each other the innermost one ends.
  void stop_when(const DRef& flag, Where where = Where::current());
  /// What a call of the program returns: this value; a list of them, if there are several. None, if the replay has ended before
  /// the value was made.
  void returns(const DRef& value);
  /// The program, on all workers. The recording has ended.
  Program finish(Where where = Where::current());

 private:
  friend class Session;
  explicit Recording(std::shared_ptr<detail::ProgramRecorder> recorder) : recorder_(std::move(recorder)) {}
  detail::ProgramRecorder& recorder() const;
  std::shared_ptr<detail::ProgramRecorder> recorder_;
};

}  // namespace tutti
