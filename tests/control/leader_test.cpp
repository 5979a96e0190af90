// A leader without a session: each rank of an MPI job is a node with a private segment, whose worker the test plays. All ranks
// run the same test at the same time; rank 0 is the root. Two ranks at least: leaders are for several nodes.
#include "control/channel/mpi/leader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>

#include "agreement/remote_verdict.h"
#include "control/wire/command.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace std::chrono_literals;

constexpr auto kLimit = 20s;

int rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int ranks() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

/// The clock of all leaders; tests that need time make it pass.
Clock::duration passed{};
Clock::time_point now() { return Clock::now() + passed; }

Layout layout_of(uint64_t session, int heartbeat) {
  Layout layout;
  layout.session = session;
  layout.num_workers = ranks();
  for (int node = 0; node < ranks(); ++node) layout.node_of.push_back(node);
  layout.heartbeat = heartbeat;
  return layout;
}

class TestLeader : public Leader {
 public:
  using Leader::Leader, Leader::say_good_bye, Leader::tell_neighbours_lost;
};

class Leaders : public testing::Test {
 protected:
  void SetUp() override { start(0); }
  void TearDown() override {
    together([] { return true; });
  }
  /// A new session, with a leader on every rank.
  void start(int heartbeat) {
    static uint64_t session = 0;
    leader_.reset();
    layout_ = layout_of(++session, heartbeat);
    segment_ = std::make_unique<Segment>(Segment::Kind::kPrivate, layout_, rank());
    leader_ = std::make_unique<TestLeader>(*segment_, rank(), MPI_COMM_WORLD, mail_, now);
    commands_ = segment_->commands(rank());
    MPI_Barrier(MPI_COMM_WORLD);  // no leader of the session before is left to receive, and drop, messages of this one
  }
  bool is_root() const { return rank() == 0; }
  BoardMember& me() { return segment_->board().member(rank()); }

  /// The leader goes on until `ready` is so on every rank.
  template <class Ready>
  void together(Ready ready) {
    MPI_Request all = MPI_REQUEST_NULL;
    bool here = false;
    const auto end = Clock::now() + kLimit;
    for (int everywhere = 0; !everywhere;) {
      if (leader_ && !is_stuck_ && lost_.empty()) try {
          leader_->step();
        } catch (const TransportError& error) {
          lost_ = error.what();
          leader_->tell_neighbours_lost(lost_);
        }
      if (!here && ready()) here = true, MPI_Ibarrier(MPI_COMM_WORLD, &all);
      if (here) MPI_Test(&all, &everywhere, MPI_STATUS_IGNORE);
      if (Clock::now() > end) {
        std::fprintf(stderr, "rank %d: %s within 20 s\n", rank(), here ? "another rank is not ready" : "not ready");
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
      std::this_thread::yield();
    }
  }

  void push(uint64_t seq, size_t name_bytes = 8) {
    Command command{.action = Action::kGetGlobalFunc, .seq = seq, .reg = 1, .name = std::string(name_bytes, 'f')};
    leader_->push(framed(encode(command)));
  }
  /// Of the node's worker: what has come.
  void read_commands() {
    while (auto frame = frames_.poll(commands_)) seen_.push_back(decode_command(*frame));
  }

  void arrive(uint64_t seq, int64_t count) {
    Arrival mine{.worker = rank(),
                 .id = {world_key(), seq, 0},
                 .signature = {.op = CollectiveOp::kAllreduce, .dtype = kFloat32, .count = count}};
    for (int worker = 0; worker < ranks(); ++worker) mine.members.push_back(worker);
    Writer out;
    encode(out, mine);
    segment_->board().arrival(rank()).write(out.bytes());
  }
  /// Waits for a verdict that the root has handed down.
  RemoteVerdict verdict() {
    std::vector<std::byte> bytes;
    together([&] { return segment_->board().verdict(rank()).read_next(bytes, verdict_version_); });
    Reader in(bytes);
    return decode_remote_verdict(in);
  }

  LeaderMail mail_{std::vector<int64_t>(static_cast<size_t>(ranks())), 0};
  Layout layout_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<TestLeader> leader_;
  RingReader commands_;
  FrameReader frames_;
  std::vector<Command> seen_;
  uint64_t verdict_version_ = 0;
  bool is_stuck_ = false;
  std::string lost_;
};

TEST_F(Leaders, commands_reach_every_node_in_order_and_progress_comes_back) {
  constexpr uint64_t kMany = 5000;
  uint64_t pushed = 0, told = 0;
  together([&] {
    if (is_root()) {
      // a large one comes in its own time: what is sent after it waits for it
      for (int i = 0; i < 50 && pushed < kMany; ++i) ++pushed, push(pushed, pushed % 100 == 0 ? 100000 : 8);
      me().finished_seq.store(pushed);
      const uint64_t finished = leader_->finished_below();
      EXPECT_LE(told, finished);
      told = finished;
      return finished == kMany;
    }
    read_commands();
    me().finished_seq.store(seen_.size());
    return seen_.size() == kMany;
  });
  for (size_t i = 0; i < seen_.size(); ++i) EXPECT_EQ(seen_[i].seq, i + 1);
  together([&] { return leader_->has_passed_on(kMany); });
}

TEST_F(Leaders, progress_is_that_of_the_slowest_node) {
  for (int slow = 1; slow < ranks(); ++slow) {
    const auto seq = static_cast<uint64_t>(slow) * 2;
    me().finished_seq.store(rank() == slow ? seq - 1 : seq);
    together([&] { return !is_root() || leader_->finished_below() == seq - 1; });
    const auto end = Clock::now() + 20ms;
    together([&] {
      if (is_root()) {
        EXPECT_EQ(leader_->finished_below(), seq - 1);
      }
      return Clock::now() >= end;
    });
    me().finished_seq.store(seq);
    together([&] { return !is_root() || leader_->finished_below() == seq; });
  }
}

TEST_F(Leaders, commands_larger_than_the_ring_pass_and_the_controller_is_held_back) {
  constexpr uint64_t kMany = 24;
  constexpr size_t kLarge = Segment::kRingBytes + 1;
  uint64_t pushed = 0;
  bool held_back = false;
  together([&] {
    if (is_root()) {
      for (; pushed < kMany && leader_->has_room(); ++pushed) push(pushed + 1, kLarge);
      held_back |= pushed < kMany;
      return pushed == kMany;
    }
    read_commands();
    return seen_.size() == kMany;
  });
  if (is_root()) {
    EXPECT_TRUE(held_back);  // more than the window
  }
  for (size_t i = 0; i < seen_.size(); ++i) {
    EXPECT_EQ(seen_[i].seq, i + 1);
    EXPECT_EQ(seen_[i].name.size(), kLarge);
  }
}

TEST_F(Leaders, a_reply_of_any_size_is_there_before_the_news_that_its_command_is_finished) {
  const std::vector<size_t> sizes{1, Segment::kReplyBytes * 3, 100};
  std::vector<std::byte> stream;
  for (const size_t size : sizes) {
    const Reply reply{.kind = Reply::Kind::kValue, .worker = rank(), .seq = 1, .value = std::string(size, 'r')};
    const auto frame = framed(encode(reply));
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  RingWriter replies = segment_->replies(rank());
  std::span<const std::byte> rest = stream;
  std::vector<Reply> got;
  together([&] {
    if (is_root()) {
      const bool finished = leader_->finished_below() == 1;
      while (auto reply = leader_->pop_reply()) got.push_back(decode_reply(*reply));
      if (finished) {
        EXPECT_EQ(got.size(), sizes.size() * static_cast<size_t>(ranks() - 1));
      }
      return finished;
    }
    rest = rest.subspan(replies.write_some(rest));
    if (rest.empty()) me().finished_seq.store(1);
    return rest.empty();
  });
  std::map<int, std::vector<size_t>> by_worker;
  for (const Reply& reply : got) by_worker[reply.worker].push_back(reply.value.as<std::string>().size());
  for (const auto& [worker, sent] : by_worker) EXPECT_EQ(sent, sizes) << "worker " << worker;
}

TEST_F(Leaders, a_reply_around_the_end_of_the_ring_comes_before_the_news_as_well) {
  constexpr size_t kBefore = 1000, kSmall = 3000;  // bytes: sent at once, whoever waits for them
  RingWriter replies = segment_->replies(rank());
  const auto write = [&](uint64_t seq, size_t size) {
    std::vector<std::byte> frame;
    for (size_t text = size; frame.size() != size; text -= frame.size() - size)
      frame = framed(encode(Reply{.kind = Reply::Kind::kValue, .worker = rank(), .seq = seq, .value = std::string(text, 'r')}));
    EXPECT_EQ(replies.write_some(frame), size);
  };
  std::map<uint64_t, int> got;
  const auto has_all = [&](uint64_t seq) {
    while (const auto reply = leader_->pop_reply()) ++got[decode_reply(*reply).seq];
    return got[seq] == ranks() - 1;
  };
  size_t at = 0;
  for (uint64_t seq = 1; seq <= 10; ++seq) {
    if (!is_root()) write(0, Segment::kReplyBytes - kBefore - at);
    got[0] = 0;
    together([&] { return !is_root() || has_all(0); });
    if (!is_root()) {
      write(seq, kSmall);
      me().finished_seq.store(seq);
      leader_->step();
      std::this_thread::sleep_for(3ms);  // the root sees what this step has sent, and no more
    }
    together([&] {
      if (!is_root() || leader_->finished_below() != seq) return !is_root();
      EXPECT_TRUE(has_all(seq)) << "command " << seq;
      return true;
    });
    at = kSmall - kBefore;
  }
}

TEST_F(Leaders, the_root_hands_the_verdict_to_all_when_all_have_arrived) {
  for (uint64_t seq = 1; seq <= 3; ++seq) {
    arrive(seq, 4);
    const RemoteVerdict v = verdict();
    EXPECT_TRUE(v.agreed);
    EXPECT_EQ(v.id, (CollectiveId{world_key(), seq, 0}));
    EXPECT_EQ(v.counts.size(), static_cast<size_t>(ranks()));
  }
}

TEST_F(Leaders, a_member_that_means_something_else_fails_all) {
  arrive(1, rank() == ranks() - 1 ? 8 : 4);
  const RemoteVerdict v = verdict();
  EXPECT_FALSE(v.agreed);
  EXPECT_NE(v.why.message.find("worker " + std::to_string(ranks() - 1)), std::string::npos) << v.why.message;
}

TEST_F(Leaders, a_member_that_leaves_without_an_arrival_fails_the_others) {
  const bool leaves = rank() == ranks() - 1;
  if (leaves) me().finished_seq.store(7);  // it has done the command, and never came
  else arrive(7, 4);
  std::vector<std::byte> bytes;
  together([&] { return leaves || segment_->board().verdict(rank()).read_next(bytes, verdict_version_); });
  if (leaves) return;
  Reader in(bytes);
  const RemoteVerdict v = decode_remote_verdict(in);
  EXPECT_FALSE(v.agreed);
  EXPECT_NE(v.why.message.find("worker " + std::to_string(ranks() - 1)), std::string::npos) << v.why.message;
}

TEST_F(Leaders, says_what_the_workers_of_all_nodes_do_and_does_without_those_that_do_not_answer) {
  me().finished_seq.store(static_cast<uint64_t>(rank()) + 10);
  std::vector<WorkerState> states;
  std::atomic<bool> done{!is_root()};
  std::thread controller;
  const auto look_within = [&](std::chrono::milliseconds limit) {
    return std::thread([&, limit] {
      states = leader_->look_below(Clock::now() + limit, false);
      done = true;
    });
  };
  if (is_root()) controller = look_within(10s);
  together([&] { return done.load(); });
  if (controller.joinable()) controller.join();
  if (is_root()) {
    ASSERT_EQ(std::ssize(states), ranks() - 1);
    for (const WorkerState& state : states) EXPECT_EQ(state.finished, static_cast<uint64_t>(state.worker) + 10);
  }
  // nobody drives the last node's leader
  is_stuck_ = rank() == ranks() - 1;
  MPI_Barrier(MPI_COMM_WORLD);  // before anybody asks it
  done = !is_root();
  if (is_root()) controller = look_within(2s);
  together([&] { return done.load(); });
  if (controller.joinable()) controller.join();
  is_stuck_ = false;
  if (is_root()) {
    EXPECT_EQ(std::ssize(states), ranks() - 2);
  }
}

TEST_F(Leaders, a_neighbour_that_falls_silent_is_named_and_one_that_has_said_good_bye_is_not) {
  for (const bool politely : {true, false}) {
    start(10);
    const auto all_beat = Clock::now() + 100ms;  // one that has never come is not missed
    together([&] { return Clock::now() > all_beat; });
    const bool is_last = rank() == ranks() - 1;
    if (is_last && politely) leader_->say_good_bye();
    is_stuck_ = is_last;
    for (int tick = 0; tick < 150; ++tick) {  // 15 s in step: a rank without a core is not silent
      passed += 100ms;
      together([] { return true; });
    }
    if (is_last || politely) {
      EXPECT_EQ(lost_, "");
    } else {
      EXPECT_NE(lost_.find("rank " + std::to_string(ranks() - 1)), std::string::npos) << lost_;
    }
    is_stuck_ = false;
    lost_.clear();
    leader_.reset();
    passed = {};
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_F(Leaders, what_an_earlier_session_left_behind_is_dropped) {
  if (is_root()) {
    push(1);
    for (int i = 0; i < 10; ++i) leader_->step();
  }
  start(0);
  if (is_root()) push(2);
  together([&] {
    read_commands();
    return is_root() || !seen_.empty();
  });
  if (!is_root()) {
    EXPECT_EQ(seen_.front().seq, 2u);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  testing::InitGoogleTest(&argc, argv);
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
