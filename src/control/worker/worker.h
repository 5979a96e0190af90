#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "agreement/failures.h"
#include "agreement/worker_agreement.h"
#include "collective/collectives.h"
#include "collective/node/peer_memory.h"
#include "control/segment/segment.h"
#include "control/wire/exchange.h"
#include "control/worker/fault.h"
#include "control/worker/inbox.h"
#include "control/worker/members.h"
#include "control/worker/outbox.h"
#include "control/worker/register_file.h"
#include "control/worker/worker_plane.h"
#include "core/process.h"
#include "device/streams.h"
#include "topology/index_set.h"

namespace tutti::detail {

struct CommHandle;

/// One worker: executes the commands of its inbox, in order, on its register file.
class Worker {
 public:
  /// `exchange`: of workers in the controller's process. `mpi_parent`: MPI_Comm* for data whose ranks are worker ids, or null.
  Worker(Segment& segment, int id, Exchange* exchange, void* mpi_parent);
  ~Worker();
  void serve();  ///< until shut_down

  // what serve() consists of, for Worker0
  void runs_here();                          ///< on this thread, from now on: for hang reports
  bool fetch() { return inbox_.fetch(); }    ///< whether a command is there, which run_fetched() runs
  bool is_due() { return inbox_.is_due(); }  ///< to be looked at
  bool run_fetched(bool at_once);            ///< `at_once`: without a wait since the last. false: it was shut_down
  bool may_run_anywhere();                   ///< what was fetched, on the thread of a controller that waits
  void answer_into(std::deque<std::vector<std::byte>>* answers) { outbox_.divert(answers); }  ///< null: the ring
  static void give_up(Segment& segment, int id, const std::exception& error);                 ///< ends the session

  static Worker* current();  ///< of this thread, while it runs a command; else null

  int id() const { return id_; }
  const Layout& layout() const { return segment_.layout(); }
  int group_id() const { return id_ / layout().group_size(); }
  Collectives& collectives() { return collectives_; }
  Agreement& agreement() { return agreement_; }
  Recorder& recorder() { return recorder_; }
  Collectives::Members world() const { return world_of(layout(), id_); }
  Collectives::Members group() const { return group_of(layout(), id_); }
  Collectives::Members named(const std::vector<int>& workers) {
    return collectives_.named(CommKind::kNamed, listed(layout(), id_, workers));
  }
  struct CommHandles {
    std::shared_ptr<CommHandle> world, group;
  };
  CommHandles& comm_handles() { return comm_handles_; }  ///< of worker::world(), worker::group(): made once
  /// @param device_ids  by a worker's place on its node
  void init_ccl(std::string_view ccl, const Shape& device_ids);
  std::string_view ccl() const { return collectives_.ccl(); }
  Device device() const { return collectives_.device(); }
  uint64_t seq() const { return command_.seq; }
  bool runs_quick() const { return runs_quick_; }           ///< a function that is registered so
  const topology::IndexSet& cpus() const { return cpus_; }  ///< that its thread began with
  uint64_t serial() const { return serial_; }               ///< of all workers that this process has had
  bool is_fork() const {
    return generation_now_.load(std::memory_order_relaxed) != generation_;
  }  ///< a child of the worker's process

  // for a recorded program, which runs commands inside of one
  RegisterFile& registers() { return registers_; }
  ReplayView& replay_view() { return slot_.replay; }
  int64_t result_register() const { return command_.reg; }       ///< of the command that runs
  Value take(uint64_t token) { return exchange_->take(token); }  ///< worker 0, of its controller
  void check_alive() { segment_.check_not_abandoned(); }
  void begin_step(const Function::Options& options) {
    if (device().type != dl::kCPU) set_device();
    run_quick(options.quick);
  }
  void run_quick(bool is_quick) { runs_quick_ = is_quick; }
  bool records_steps() const { return records_steps_; }
  void record_steps(bool does) { records_steps_ = does; }
  void end_step(const Command& command, const Value& result) {
    if (streams_.is_busy()) note_written(command, result);
    if (failed_in_.seq != 0) failed_in_ = {};  // of an error that the step has caught
  }
  /// For the report of an error that is on its way: it was thrown by `function`, `where`: "step 3 of program train.py:12".
  void failed_in(const std::string& function, const std::string& where) noexcept;

 private:
  bool execute();  ///< false: the command was shut_down
  void run(Command& command);
  void await_device();
  std::optional<Streams::Broken> look_at_device(bool waits = true);
  std::optional<DeviceLoss> device_loss();
  void check_device(bool waits);
  DeviceLoss first_loss();
  void enter_device();
  void set_device();
  void renew_device();
  void drop_token();
  bool is_never_skipped();
  void skip(Command& command);
  void note_written(const Command& command, const Value& result);
  Tensor on_device(const Tensor& host) const;
  Value call(const Command& command);
  void copy_on_worker0(const Command& command);
  void debug_get(const Command& command);
  Reply value_for_controller(const Command& command, std::vector<Tensor>& large);
  Tensor within_reach(const Tensor& tensor) const;
  bool fill(const Command& command, const std::vector<Tensor>& large);
  bool await_moved();
  Reply refusal(const Command& command, const std::string& why) const;
  void debug_set(const Command& command);
  void leave_collectives(Origin origin);
  void record_failure(const std::exception* error, std::optional<Origin> origin, const std::string& kind,
                      const std::string& traceback = {});
  std::string function_name() const;
  struct InProgram {
    uint64_t seq = 0;
    std::string function, where;
  };

  Segment& segment_;
  int id_;
  uint32_t generation_ = process_generation();
  const std::atomic<uint32_t>& generation_now_ = generation_word();
  uint64_t serial_;
  Exchange* exchange_;
  void* mpi_;
  WaitPolicy policy_, collective_policy_;
  PeerMemory peers_;
  NodePlane node_;
  WorkerSlot& slot_;
  BoardMember& shown_;
  Inbox inbox_;
  Command& command_ = inbox_.command();  // that runs
  Outbox outbox_;
  RegisterFile registers_;
  Streams streams_;
  Failures failures_;
  Recorder recorder_;
  Faults faults_;
  WorkerPlane plane_;
  WorkerAgreement agreement_;
  Collectives collectives_;
  CommHandles comm_handles_;
  bool runs_quick_ = false, records_steps_ = true;
  InProgram failed_in_;  // of a recorded program: the command whose error is on its way
  topology::IndexSet cpus_;
  List args_;                                   // of the call that runs
  Record::State state_ = Record::State::kDone;  // of it
};

}  // namespace tutti::detail
