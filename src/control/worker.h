#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "collective/collectives.h"
#include "control/command.h"
#include "control/exchange.h"
#include "control/failures.h"
#include "control/fault.h"
#include "control/register_file.h"
#include "control/segment.h"
#include "control/worker_agreement.h"

namespace tutti {

/// One worker: reads commands off its node's ring and executes them, in order, on its register file.
class Worker {
 public:
  /// `exchange`: worker 0 only. `mpi_parent`: MPI_Comm* for data whose ranks are worker ids, or null.
  Worker(Segment& segment, int id, Exchange* exchange, void* mpi_parent);
  ~Worker();
  void serve();  ///< until shut_down

  static Worker* current();  ///< of this thread, while it runs a command; else null

  int id() const { return id_; }
  const Layout& layout() const { return segment_.layout(); }
  int group_id() const { return id_ / layout().group_size(); }
  Collectives& collectives() { return collectives_; }
  Recorder& recorder() { return recorder_; }
  Collectives::Members world() const;
  Collectives::Members group() const;
  uint64_t seq() const { return command_.seq; }
  uint64_t serial() const { return serial_; }  ///< of all workers that this process has had

 private:
  bool execute(const std::string& malformed);  ///< false: the command was shut_down
  void run(Command& command);
  void skip(Command& command);
  void lose_results(const Command& command, Origin origin);
  Value call(const Command& command);
  Value argument(const Command& command, size_t position, const Value& arg, int written_arg);
  void copy_on_worker0(const Command& command);
  void debug_get(const Command& command);
  Reply value_for_controller(const Command& command);
  Reply refusal(const Command& command, const std::string& why) const;
  void debug_set(const Command& command);
  void record_failure(const std::exception* error, std::optional<Origin> origin, const std::string& kind,
                      const std::string& traceback = {});
  void reply(const Reply& reply);
  std::string function_name() const;

  Segment& segment_;
  int id_;
  uint64_t serial_;
  Exchange* exchange_;
  WaitPolicy policy_;
  StagingArea staging_;
  ByteRing commands_;
  FrameReader frames_;
  RegisterFile registers_;
  Failures failures_;
  Recorder recorder_;
  Faults faults_;
  WorkerAgreement agreement_;
  Collectives collectives_;
  Command command_;
  Record::State state_ = Record::State::kDone;  // of it
};

}  // namespace tutti
