#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agreement/collective_id.h"
#include "agreement/signature.h"
#include "control/wire/command.h"
#include "core/function_parts.h"

namespace tutti::detail {

/// Nanoseconds of this machine's clock in units of the fastest counter there is; `TickScale` turns them into time.
inline uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// What a worker did or does, as a reader gets it.
struct Record {
  enum class What : uint8_t { kNone, kCommand, kCollective, kStep };                ///< the last: of a recorded program
  enum class State : uint8_t { kRunning, kDone, kFailed, kSkipped, kConsequence };  ///< the last: another failure made it fail

  What what = What::kNone;
  State state = State::kRunning;
  uint64_t number = 0;                      ///< counts all records of a worker
  uint64_t begin = 0, agreed = 0, end = 0;  ///< in ticks; 0: not yet
  uint64_t seq = 0;                         ///< of the command
  Action action{};                          ///< a command's
  std::string function;                     ///< a call's or a step's, its first 31 characters; or kOfDevice
  uint32_t step = 0;                        ///< a step's, from 1
  CollectiveId id;                          ///< a collective's
  Signature signature;
  bool running() const { return end == 0; }
};

/// In the place of a call's function: its worker waits for what was started.
inline constexpr const char* kOfDevice = "work of its device";

/// The flight recorder of one worker: the last things it began, in its node's segment. The worker writes, some ten nanoseconds a
/// record; anyone reads, at any time, also when the worker is stuck or dead.
class Recorder {
 public:
  static constexpr size_t kRecords = 2048, kBytes = 64 + kRecords * 64;

  explicit Recorder(std::byte* memory)
      : count_(reinterpret_cast<std::atomic<uint64_t>*>(memory)), records_(reinterpret_cast<Words*>(memory + 64)) {}

  void pause(bool paused) { paused_ = paused; }  ///< nothing is recorded: to see what it costs
  /// `at_once`: it followed the last record's end without a wait, so its time is known
  void begin_command(uint64_t seq, Action action, bool at_once = false);
  void name_function(const ShortName& name);  ///< of the command that runs
  void end_command(Record::State state);
  /// A step that has ended. Returns when.
  uint64_t add_step(uint64_t seq, uint32_t step, const ShortName& function, uint64_t begin, Record::State state);
  void begin_collective(const CollectiveId& id, const Signature& signature);
  void agreed();
  void end_collective(Record::State state) { end(collective_, state); }

  std::vector<Record> read() const;  ///< oldest first; what was overwritten meanwhile is left out
  std::optional<Record> last(Record::What what) const;

 private:
  using Words = std::atomic<uint64_t>[8];
  Words& start(uint64_t& number);
  bool is_overwritten(uint64_t number) const { return count_->load(std::memory_order_relaxed) - number >= kRecords; }
  void end(uint64_t number, Record::State state);
  std::optional<Record> read(uint64_t number) const;

  std::atomic<uint64_t>* count_;
  Words* records_;
  bool paused_ = false;
  uint64_t last_end_ = 0;
  uint64_t command_ = 0, collective_ = 0;  // writer's: numbers of what runs
  struct {
    uint64_t begin = 0, seq = 0, what = 0;
    ShortName name;
  } kept_;  // of the command, should its own collectives and steps overwrite it
};

/// How ticks relate to time: two looks at both clocks. All times of one scale are in the order of their ticks.
class TickScale {
 public:
  TickScale();  ///< the first look: now
  TickScale(uint64_t ticks, int64_t wall_ns, int64_t steady_ns) : ticks_(ticks), wall_ns_(wall_ns), steady_ns_(steady_ns) {
    ns_per_tick_ = ns_per_tick();
  }
  double seconds_between(uint64_t begin, uint64_t end) const;
  int64_t wall_ns(uint64_t at) const;  ///< since 1970

  uint64_t ticks() const { return ticks_; }
  int64_t wall_ns() const { return wall_ns_; }
  int64_t steady_ns() const { return steady_ns_; }

 private:
  double ns_per_tick() const;
  uint64_t ticks_;
  int64_t wall_ns_, steady_ns_;
  double ns_per_tick_ = 0;  // by the second look
};

}  // namespace tutti::detail
