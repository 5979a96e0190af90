#pragma once

#include <mpi.h>

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "agreement/arrival.h"
#include "control/channel/mpi/heartbeat.h"
#include "control/channel/mpi/questions.h"
#include "control/channel/mpi/verdicts.h"
#include "control/segment/segment.h"
#include "control/watch/trace_file.h"
#include "control/watch/worker_state.h"

namespace tutti::detail {

/// What this rank's leaders have sent, by rank, and received, over all sessions of a job: what no leader was there for any more
/// is received at the job's end.
struct LeaderMail {
  std::vector<int64_t> sent;
  int64_t received = 0;
};

/// A node's leader in a job of several nodes: forwards commands down a tree of leaders and onto its node's ring, replies and
/// progress up, arrivals to the root, verdicts to the members. A plain state machine, which never blocks; a thread drives it
/// (leader_thread.h), or a simulation (tests/sim). The root is the leader of node 0, in the controller's process.
class Leader {
 public:
  using Now = Clock::time_point (*)();
  Leader(Segment& segment, int node, MPI_Comm control, LeaderMail& mail, Now now = Clock::now);
  bool step();  ///< whatever can be done now; false: there was nothing
  /// Everything up to `seq` is finished here and below, and passed on.
  bool has_passed_on(uint64_t seq);

  // root only, called by the controller
  bool has_room() const { return sent_.load() - consumed_below_.load() < kWindow; }
  void push(std::span<const std::byte> framed_commands);
  std::optional<std::vector<std::byte>> pop_reply();
  bool has_reply();
  uint64_t finished_below() const { return finished_below_.load(std::memory_order_seq_cst); }
  std::vector<WorkerState> look_below(Clock::time_point deadline,
                                      bool with_lines);  ///< any thread: what the other nodes' workers do
  void dump_below(const TraceDump& dump);                ///< any thread: the other nodes write their traces

 protected:
  Segment& segment() { return segment_; }
  void say_good_bye();
  void tell_neighbours_lost(const std::string& why);
  void drop_sends();

  std::atomic<bool> failed_{false};  // nobody drives it any more

 private:
  enum class Kind : uint8_t {
    kCommands,
    kReply,
    kProgress,
    kArrival,
    kLeft,
    kVerdict,
    kQuestion,  // to the root
    kAsk,       // to the nodes
    kAnswer,    // to the root
    kAnswered,  // to those that have asked
    kWatch,
    kLook,
    kState,
    kDump,
    kDeviceLoss,
    kBeat,
    kBye,
    kLost
  };
  struct Child {
    int rank;
    uint64_t finished = 0, consumed = 0;
  };
  struct Sending {
    std::vector<std::byte> bytes;
    MPI_Request request;
    bool is_work = true;  // not a mere sign of life
  };
  struct Receiving {
    int from;
    std::vector<std::byte> bytes;
    MPI_Request request;
  };
  struct Watch {
    int worker;
    uint64_t seq;
    auto operator<=>(const Watch&) const = default;
  };

  static constexpr uint64_t kWindow = 4 << 20;
  static constexpr uint64_t kOwnLook = uint64_t{1} << 63;  // the numbers of looks for deadlocks

  bool receive();
  void handle(int from, std::span<const std::byte> message);
  void beat();
  double data_seconds();
  bool forward_commands();
  bool forward_replies();
  bool forward_progress();
  bool forward_arrivals();
  bool answer_watches();
  bool hand_down_verdicts();
  bool forward_questions();
  void ask_nodes(int asker, std::span<const std::byte> question);
  bool answer_questions();
  bool hand_down_answers();
  void take_answer(const Answer& answer);
  void take_question(Sequence asked);
  bool is_lost(uint64_t since) const;
  void drop_questions();
  bool pass_on_looks();
  bool pass_on_device_loss();
  bool look_for_deadlocks();
  void hand_down(const Verdicts::Fallen& fallen);
  bool complete_sends();
  void finish_sends();
  void send(int rank, Kind kind, std::span<const std::byte> body);
  void to_root(Kind kind, const Writer& body);
  bool has_replies();
  void take_reply(int32_t worker, std::span<const std::byte> piece);

  Segment& segment_;
  int node_, rank_;
  bool is_root_;
  MPI_Comm control_;
  LeaderMail& mail_;
  Now now_;
  int parent_ = -1;
  std::vector<Child> children_;
  std::optional<Heartbeat> heartbeat_;
  TraceWriter traces_;
  RingWriter ring_;
  std::vector<RingReader> replies_;
  std::map<int32_t, FrameReader> frames_;  // root: by worker of another node
  std::vector<uint64_t> arrival_versions_, question_versions_;
  std::vector<std::optional<Sequence::Id>> asking_;  // by worker of this node
  std::list<Question> open_questions_;               // to this node
  std::deque<std::vector<std::byte>> backlog_;       // pieces of commands that the node's ring has no space for yet
  size_t backlog_taken_ = 0;                         // of the first
  std::list<Sending> sending_;
  std::list<Receiving> receiving_;
  std::set<Watch> watches_;
  struct Look {  // for deadlocks; root
    uint64_t number = 0;
    bool under_way = false;
    Clock::time_point begun{};
    std::map<int, std::vector<WorkerState>> states;
    std::optional<Deadlock> found;  // by the last
  } look_;
  uint64_t sent_finished_ = 0, sent_consumed_ = 0;
  uint64_t device_lost_since_ = 0;        // as passed on
  std::unique_ptr<Verdicts> verdicts_;    // root
  std::unique_ptr<Questions> questions_;  // root

  std::mutex mutex_;  // of what the root's controller and whoever drives it share
  std::vector<std::byte> outgoing_;
  std::deque<std::vector<std::byte>> inbox_;
  uint64_t looks_ = 0;                              // asked for so far
  bool look_has_lines_ = false;                     // the last
  std::vector<TraceDump> dumps_;                    // to pass on
  uint64_t looks_passed_on_ = 0;                    // by step()
  std::map<int, std::vector<WorkerState>> states_;  // answers to the last, by node
  std::atomic<uint64_t> sent_{0}, consumed_below_{0}, finished_below_{0};
};

}  // namespace tutti::detail
