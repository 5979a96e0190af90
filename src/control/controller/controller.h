#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "control/channel/workers.h"
#include "control/controller/failure_ledger.h"
#include "control/controller/flusher.h"
#include "control/controller/registers.h"
#include "control/controller/sites.h"
#include "control/wire/command.h"
#include "control/wire/exchange.h"
#include "core/spin_lock.h"
#include "tutti/session.h"

namespace tutti::detail {

/// The controller's side of a session: numbers and sends commands, owns register ids, collects failures and raises them.
class Controller : public std::enable_shared_from_this<Controller> {
 public:
  using StartWorkers = std::function<std::unique_ptr<Workers>(Exchange&)>;
  /// `closed` runs once the session is over.
  Controller(std::string kind, const StartWorkers& start_workers, Timeout limit, std::function<void()> closed);
  ~Controller();
  /// A handle whose last copy closes the session; DRefs keep only the controller itself.
  std::shared_ptr<Controller> handle();

  const std::string& kind() const { return kind_; }
  const Layout& layout() const { return layout_; }
  const std::string& ccl() const { return ccl_; }
  void set_ccl(std::string_view ccl) {
    const std::lock_guard lock(look_mutex_);  // a report may read it
    ccl_ = ccl;
    may_have_gpus_ = ccl != "mpi" && ccl != "local";
  }
  bool timed_out() const { return timed_out_.load(); }
  bool is_lost();                                        ///< no while a call is under way in another thread
  bool has_ended() const { return over_ || has_lost_; }  ///< shut down, or lost; any thread
  Progress progress();                                   ///< any thread

  DRef get_global_func(std::string_view name, Where where);
  DRef call(const DRef& func, Args args, Where where, const char* what = "call_packed");
  /// runtime.disco.<name>, looked up once. `is_recorded`: it becomes a step while a program is recorded; else it is sent.
  DRef call_builtin(const char* name, Args args, Where where, bool is_recorded = true);
  DRef call_builtin_at_once(const char* name, Args args, Where where) { return call_builtin(name, args, where, false); }
  DRef copy_to_new(const Tensor& host, Where where);
  DRef lend(const Tensor& host, const char* what, Where where);  ///< no copy: the memory itself, in worker 0's register
  void await_all(const char* what, Where where);  ///< until all that has been issued is done; raises no failures of workers
  void check(const DRef& ref, const char* what) const { register_of(ref, what); }  ///< @throws UsageError  not of this session
  void check_arguments(Args args, const char* what) const;                         ///< @throws UsageError  one can't travel
  void copy(Action action, const Tensor& host, const DRef& remote, Where where);
  Value debug_get(const DRef& ref, int worker, Timeout timeout, Where where);
  void debug_set(const DRef& ref, int worker, const Value& given, Timeout timeout, Where where);
  void sync(int worker, Timeout timeout, Where where);  ///< kAllWorkers: all
  void shutdown(Timeout timeout, Where where);
  bool is_idle_on_one_node();
  void close() noexcept;  ///< shutdown that logs instead of throwing

  void free_register(int64_t id) noexcept;  ///< any thread
  /// What takes the calls in the place of the workers, while a program is recorded.
  class Capture {
   public:
    virtual ~Capture() = default;
    virtual DRef call(const DRef& func, Args args, Where where) = 0;  ///< within the caller's turn
    virtual std::string began() const = 0;                            ///< "train.py:12"
  };
  void capture(const std::shared_ptr<Capture>& capture);  ///< as long as it lives.  @throws UsageError  another one does
  void release(const Capture& capture);                   ///< calls are sent again.  @throws UsageError  it takes none any more
  void forget(const Capture& capture);                    ///< it ends
  bool is_recording() const { return capturing_.load() != nullptr; }
  void refuse_to_record(const char* what) const;  ///< @throws UsageError  a program is recorded
  DRef new_register();                            ///< that no command writes yet
  /// Another handle on a register, which says when its last copy is gone; `gone` may run on any thread.
  static DRef watched(const DRef& ref, std::function<void(int64_t id)> gone);
  static int64_t id_of(const DRef& ref);  ///< not of an empty one

  std::string report(std::string_view why);  ///< what every worker does; any thread. Empty: the session is over
  void dump_traces(const char* reason);      ///< files of the flight recorders, if TUTTI_TRACE names a folder; any thread
  void on_preemption(std::function<void()> hook);
  void set_live(bool is_live);                   ///< whether report_all may ask it
  static void report_all(std::string_view why);  ///< of all live sessions of this process, to stderr

 private:
  [[noreturn]] void preempt();
  enum class Purpose { kCall, kShutdown, kClose };
  /// The right to use the session, for one call. Calls must not overlap in time: that is an error, not a race.
  class Turn {
   public:
    explicit Turn(Controller& controller, Purpose purpose = Purpose::kCall);  ///< @throws UsageError, TransportError

   private:
    std::unique_lock<SpinLock> lock_;
  };
  /// Something a call waits for: says so when it takes long, and notices lost workers.
  class Wait {
   public:
    Wait(Controller& controller, std::string what, Where where, Clock::time_point since = Clock::now());
    std::string so_far() const;
    void tick();  ///< now and then.  @throws TransportError

   private:
    Controller& controller_;
    std::string what_;
    Where where_;
    Clock::time_point since_, next_report_;
  };
  int64_t register_of(const DRef& ref, const char* what) const;
  void check_worker(int worker, const char* what) const;
  DRef look_up(std::string_view name, Where where);
  const DRef& builtin(const char* name, Where where);
  DRef issue_call(const DRef& func, Args args, Where where);
  DRef send_call(const DRef& func, Args args, Where where);
  uint64_t issue(Command& command, Where where, Clock::time_point deadline = Clock::time_point::max());
  uint64_t issue(Command& command, Args args, Where where, Clock::time_point deadline, DRef* result);
  DRef put_on_worker0(const Tensor& array, Where where);
  DRef lend_to_steps(const Tensor& host, Where where);
  void drain();
  void move_apart(Reply& reply);
  void keep_for_later(uint64_t seq);
  void wait_for(uint64_t awaited, const std::function<bool()>& ready, Clock::time_point deadline, const std::string& what,
                Where where);
  void sync_locked(int worker, Clock::time_point deadline, Where where);
  void await_ack(int worker, Clock::time_point deadline, Where where);
  void await_origins(Clock::time_point deadline, Where where);
  bool has_room();
  void await_room(Clock::time_point deadline, Where where);
  void raise_failures(bool all_is_in, Clock::time_point deadline, Where where);
  static Clock::time_point deadline_of(Timeout timeout);
  [[noreturn]] void lose(const TransportError& error);
  void end(Timeout timeout, Where where, Purpose purpose);
  bool may_close_here() const;
  bool begin_to_close();
  void finish();
  void flush();

  std::string kind_, ccl_ = "auto";
  bool may_have_gpus_ = false;  // since init_ccl
  uint64_t id_;
  pid_t pid_;
  uint32_t process_generation_;
  Layout layout_;
  Exchange exchange_;
  std::unique_ptr<Workers> workers_;
  std::function<void()> closed_;

  SpinLock turn_;  // one call at a time; the flusher takes its turn as well
  std::atomic<bool> flushing_{false};
  std::atomic<bool> over_{false};
  uint64_t last_seq_ = 0;  // of the command that shuts down, once it is on its way
  std::string lost_;       // why, after a TransportError
  std::atomic<bool> has_lost_{false};

  std::atomic<uint64_t> seq_{0};
  std::string made_at_;
  Clock::duration limit_;               // a wait of this length writes a hang report
  std::atomic<bool> timed_out_{false};  // the last wait: a worker may be stuck
  bool closing_ = false;                // nobody is there to whom an interrupt could go
  uint32_t dumps_ = 0;
  std::function<void()> preemption_hook_;
  std::weak_ptr<Capture> capture_;
  std::atomic<const Capture*> capturing_{nullptr};  // the same, for those who only ask
  std::mutex look_mutex_;                           // the workers are not closed meanwhile
  Sites sites_;
  std::map<std::string, DRef> builtins_;
  Command call_{.action = Action::kCallPacked};  // their memory is used again
  Writer frame_;

  Registers registers_;
  FailureLedger failures_;
  std::map<int, uint64_t> acks_;
  std::optional<Reply> answer_;
  struct Giving {
    int worker;
    std::vector<Tensor> tensors;
  };
  std::map<uint64_t, Giving> giving_;  // by command: what its worker will ask for
  uint64_t awaited_ = 0;

  Flusher flusher_;  // the last: its thread uses the others
};

struct DRefState {
  std::shared_ptr<Controller> controller;
  int64_t id;
  uint64_t session;
  DRefState(std::shared_ptr<Controller> c, int64_t i, uint64_t s) : controller(std::move(c)), id(i), session(s) {}
  DRefState(const DRefState&) = delete;
  DRefState& operator=(const DRefState&) = delete;
  ~DRefState() { controller->free_register(id); }
};

}  // namespace tutti::detail
