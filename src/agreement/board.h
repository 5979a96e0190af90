// What the members on a node share to agree: their arrivals, where they stand, what they have failed with. A stuck or dead
// member's part can still be read.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "agreement/arrival_line.h"
#include "agreement/origin.h"
#include "core/doorbell.h"
#include "core/shared_record.h"

namespace tutti::detail {

struct BoardHeader {
  std::atomic<uint32_t> abandoned;  // the session is lost: whoever waits here gives up. 1: `why` is being written, 2: it is
  char why[512];
  std::atomic<int32_t> leaver;  // 1: a worker is leaving a collective without success
  struct {                      // the latest loss of the members' device communicators; `claimed` first, `since` last
    std::atomic<uint64_t> claimed, since, seq;
    std::atomic<int32_t> worker;
  } device_loss;
  std::atomic<uint32_t> questions;  // of other nodes, to which this one's leader has no answer yet
  alignas(64) Doorbell bell;        // rung on arrivals, verdicts, hand-overs; workers in a collective sleep on it
};

struct BoardMember {
  alignas(
      64) std::atomic<uint64_t> finished_seq;    // the last command this worker is done with; alone: the controller keeps looking
  alignas(64) std::atomic<uint64_t> failed_seq;  // the last command that has failed here: it joins no more of its collectives
  alignas(64) std::atomic<uint64_t> step;        // hand-overs made in node-local collectives
  std::atomic<uint64_t> taken;                   // agreements whose arrivals this worker has read
  alignas(64) std::atomic<uint64_t> attached[2][6];  // Attachment::words of the arrival in each line
  alignas(64) std::atomic<uint64_t> ended;  // of its arrivals: fewer than its lines tell of, it may be in the memory of others
};

class Board {
 public:
  /// @param workers  of this node, in rising order; of num_workers in all
  static size_t size_bytes(int num_workers, size_t workers_here);
  Board(std::byte* memory, int num_workers, std::vector<int32_t> workers);

  bool has(int worker) const { return local_index_[static_cast<size_t>(worker)] >= 0; }
  const std::vector<int32_t>& workers() const { return workers_; }
  size_t index_of(int worker) const { return static_cast<size_t>(local_index_[static_cast<size_t>(worker)]); }
  int num_workers() const { return static_cast<int>(local_index_.size()); }

  BoardHeader& header() { return *reinterpret_cast<BoardHeader*>(memory_); }
  Doorbell& bell() { return header().bell; }
  BoardMember& member(int worker) { return reinterpret_cast<BoardMember*>(memory_ + offsets_.members)[index_of(worker)]; }
  static constexpr int kLines = 2;
  ArrivalLine& line(int worker, int number) {
    return reinterpret_cast<ArrivalLine*>(memory_ + offsets_.lines)[index_of(worker) * kLines + static_cast<size_t>(number)];
  }
  static constexpr size_t kSequences = 256, kPast = 64;
  ArrivalLine& latest_of(int worker, size_t sequence);  ///< what it has announced last of one of its communicators
  ArrivalLine& past(int worker, uint64_t number);       ///< of all that it has announced, the last kPast
  std::byte* attached_bytes(int worker, int line);      ///< kAttachedBytes that travel with the arrival in that line
  SharedRecord arrival(
      int worker);  ///< an encoded Arrival: all of it, when peers, a leader or a report may need more than the line
  SharedRecord verdict(int worker);   ///< an encoded RemoteVerdict, when members are on several nodes
  SharedRecord question(int worker);  ///< an encoded Sequence: what it waits for at its device; empty: nothing
  SharedRecord answer(int worker);    ///< an encoded Answer
  SharedRecord failures(int worker);  ///< the intervals of commands that this worker failed or skipped

  void tell_device_loss(const DeviceLoss& loss);                ///< the first one of each `since` stays
  std::optional<DeviceLoss> device_loss(uint64_t since) const;  ///< of communicators made since that command, or a later one
  bool may_move(int worker);                                    ///< it may be in the memory of others
  /// Whoever waits on the board gives up; the first one's words stay. Segment::abandon() wakes all others, too.
  void mark_abandoned(std::string_view why);
  bool abandoned() { return header().abandoned.load(std::memory_order_seq_cst) != 0; }
  void check_not_abandoned() {  ///< @throws TransportError
    if (abandoned()) throw_abandoned();
  }
  static constexpr std::chrono::milliseconds kTick{50};  ///< between looks whether the session is abandoned
  /// @throws TransportError
  template <class Ready>
  void await(const WaitPolicy& policy, Ready&& ready) {
    while (!wait_until(bell(), policy, Clock::now() + kTick, ready)) check_not_abandoned();
  }

 private:
  [[noreturn]] void throw_abandoned();
  struct Offsets {
    size_t members, lines, latest, past, attached, arrivals, verdicts, questions, answers, failures, end, arrival_bytes,
        verdict_bytes, question_bytes;
  };
  static Offsets offsets(int num_workers, size_t workers_here);

  std::byte* memory_;
  Offsets offsets_;
  std::vector<int32_t> workers_, local_index_;
};

}  // namespace tutti::detail
