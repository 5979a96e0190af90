// The tree between leaders at scale, under SimGrid SMPI: every simulated rank is a node with one worker, which is done with a
// command as soon as it has read it; rank 0 is the controller. Only messages take (simulated) time.
//   leaders BATCH MESSAGES SYNCS: prints how long a call and its sync take, and the calls/s of so many messages of one call, and
//   of BATCH
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "control/channel/mpi/leader.h"
#include "control/wire/command.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

Clock::time_point simulated_now() {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(MPI_Wtime())));
}

Layout layout_of(int num_nodes) {
  Layout layout;
  layout.session = 1;
  layout.num_workers = num_nodes;
  for (int node = 0; node < num_nodes; ++node) layout.node_of.push_back(node);
  return layout;  // no heartbeat
}

class Node {
 public:
  Node(int rank, int num_nodes)
      : mail_{std::vector<int64_t>(static_cast<size_t>(num_nodes)), 0},
        layout_(layout_of(num_nodes)),
        segment_(Segment::Kind::kPrivate, layout_, rank),
        commands_(segment_.commands(rank)),
        finished_(segment_.board().member(rank).finished_seq),
        leader_(segment_, rank, MPI_COMM_WORLD, mail_, simulated_now) {}

  /// A turn of the leader, whose look for messages takes simulated time, and of the worker.
  void turn() {
    leader_.step();
    while (const auto frame = frames_.poll(commands_)) {
      const Command command = decode_command(*frame);
      finished_.store(command.seq);
      if (command.action == Action::kShutDown) last_ = command.seq;
    }
  }
  bool has_ended() { return last_ != 0 && leader_.has_passed_on(last_); }

  // the controller's
  void call(int how_many, Action action = Action::kCallPacked) {
    Writer out;
    for (int i = 0; i < how_many; ++i) {
      command_.action = action;
      command_.seq = ++seq_;
      command_.reg = static_cast<int64_t>(seq_);
      encode_frame(out, command_, args_);
    }
    leader_.push(out.bytes());
    finished_.store(seq_);  // its own worker
    if (action == Action::kShutDown) last_ = seq_;
  }
  void sync() {
    call(1, Action::kSyncWorker);
    while (leader_.finished_below() < seq_) turn();
  }

 private:
  LeaderMail mail_;
  Layout layout_;
  Segment segment_;
  RingReader commands_;
  FrameReader frames_;
  std::atomic<uint64_t>& finished_;
  Leader leader_;
  Command command_;
  List args_{int64_t{1}, 2.0};
  uint64_t seq_ = 0, last_ = 0;
};

void control(Node& node, int batch, int messages, int syncs) {
  const auto timed = [](auto&& work) {
    const double start = MPI_Wtime();
    work();
    return MPI_Wtime() - start;
  };
  const auto rate = [&](int at_once) {
    const double took = timed([&] {
      for (int i = 0; i < messages; ++i) node.call(at_once), node.turn();
      node.sync();
    });
    return messages * at_once / took;
  };
  node.sync();
  const double one = timed([&] {
    for (int i = 0; i < syncs; ++i) node.call(1), node.sync();
  });
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double alone = rate(1), together = rate(batch);
  std::printf("%d ranks: call+sync %.2f us, %.0f calls/s a message each, %.0f calls/s %d a message\n", ranks, one / syncs * 1e6,
              alone, together, batch);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) return 2;
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  {
    Node node(rank, ranks);
    if (rank == 0) {
      control(node, std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]));
      node.call(1, Action::kShutDown);
    }
    while (!node.has_ended()) node.turn();
  }
  MPI_Finalize();
}
