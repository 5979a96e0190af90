// What members say of collectives that they start without waiting for each other.
#include "agreement/announcements.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agreement/failures.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

struct Node {
  explicit Node(int num_workers)
      : workers(static_cast<size_t>(num_workers)), memory(Board::size_bytes(num_workers, workers.size()) / 64) {
    std::iota(workers.begin(), workers.end(), 0);
    board.emplace(reinterpret_cast<std::byte*>(memory.data()), num_workers, workers);
    for (int w = 0; w < num_workers; ++w) members.emplace_back(*board, w, [](const CollectiveId&) { return true; });
  }
  void start(int worker, uint64_t seq, int64_t count = 10, CommKey comm = world_key(),
             CollectiveOp op = CollectiveOp::kAllreduce) {
    members[static_cast<size_t>(worker)].add({comm, seq, 0}, {.op = op, .dtype = kFloat32, .count = count}, workers);
  }
  /// What a member finds; "" where all is well, "waits" where somebody has yet to come.
  std::string look(int worker) {
    Announcements& member = members[static_cast<size_t>(worker)];
    if (const auto why = member.look()) return why->message;
    return member.are_settled() ? "" : "waits";
  }
  void finish(int worker, uint64_t seq) { board->member(worker).finished_seq.store(seq); }

  struct alignas(64) Line {
    std::byte bytes[64]{};
  };
  std::vector<int32_t> workers;
  std::vector<Line> memory;
  std::optional<Board> board;
  std::deque<Announcements> members;
};

/// Workers 0 and 1, and 2 and 3, on nodes of their own. What a worker asks is carried to the other node, and the answer back.
struct Nodes {
  Nodes() {
    for (int node = 0; node < 2; ++node) {
      memory.emplace_back(Board::size_bytes(4, 2) / 64);
      boards.emplace_back(reinterpret_cast<std::byte*>(memory.back().data()), 4, std::vector<int32_t>{2 * node, 2 * node + 1});
    }
    for (int w = 0; w < 4; ++w)
      members.emplace_back(
          board_of(w), w, [](const CollectiveId&) { return true; }, [this, w] { has_asked[w] = true; });
  }
  Board& board_of(int worker) { return boards[static_cast<size_t>(worker) / 2]; }
  void start(int worker, uint64_t seq, int64_t count = 10, CommKey comm = world_key()) {
    const Signature signature{.op = CollectiveOp::kAllreduce, .dtype = kFloat32, .count = count};
    members[static_cast<size_t>(worker)].add({comm, seq, 0}, signature, {0, 1, 2, 3});
  }
  void carry(int worker) {
    if (!std::exchange(has_asked[worker], false)) return;
    std::vector<std::byte> bytes;
    ASSERT_TRUE(board_of(worker).question(worker).read(bytes));
    Reader in(bytes);
    questions[worker].emplace(decode_sequence(in));
  }
  void answer(int worker) {
    if (!questions[worker]) return;
    const auto found = questions[worker]->look(boards[worker < 2]);
    if (!found) return;
    questions[worker].reset();
    Writer out;
    encode(out, *found);
    Reader in(out.bytes());
    Writer again;
    encode(again, decode_answer(in));
    board_of(worker).answer(worker).write(again.bytes());
  }
  std::string look(int worker) {
    Announcements& member = members[static_cast<size_t>(worker)];
    for (int i = 0; i < 3; ++i) {
      if (const auto why = member.look()) return why->message;
      carry(worker);
      answer(worker);
    }
    return member.are_settled() ? "" : "waits";
  }
  void finish(int worker, uint64_t seq) { board_of(worker).member(worker).finished_seq.store(seq); }

  std::deque<std::vector<Node::Line>> memory;
  std::deque<Board> boards;
  std::deque<Announcements> members;
  bool has_asked[4]{};
  std::optional<Question> questions[4];
};

TEST(Announcements, settle_when_all_have_come) {
  Node node(3);
  EXPECT_EQ(node.look(0), "");
  node.start(0, 1);
  EXPECT_EQ(node.look(0), "waits");
  node.start(1, 1);
  EXPECT_EQ(node.look(0), "waits");
  node.start(2, 1);
  for (int w = 0; w < 3; ++w) EXPECT_EQ(node.look(w), "") << w;
}

TEST(Announcements, that_differ_are_named) {
  Node node(3);
  node.start(0, 1);
  node.start(1, 1);
  node.start(2, 1, 11);
  for (int w = 0; w < 3; ++w) {
    const std::string why = node.look(w);
    EXPECT_NE(why.find("operands differ: workers 0-1: allreduce sum of 10 float32; worker 2: allreduce sum of 11 float32"),
              std::string::npos)
        << why;
  }
}

TEST(Announcements, a_difference_is_found_when_equal_ones_have_followed) {
  Node node(2);
  for (uint64_t seq = 1; seq <= 20; ++seq) node.start(0, seq);
  for (uint64_t seq = 1; seq <= 20; ++seq) node.start(1, seq, seq == 5 ? 11 : 10);
  for (int w = 0; w < 2; ++w)
    EXPECT_NE(node.look(w).find("worker 1: allreduce sum of 11 float32"), std::string::npos) << node.look(w);
}

TEST(Announcements, a_member_that_has_left_the_command_is_named) {
  Node node(2);
  node.start(0, 4);
  node.finish(1, 3);
  EXPECT_EQ(node.look(0), "waits");
  node.finish(1, 4);
  EXPECT_NE(node.look(0).find("allreduce: worker 1 left the command without joining"), std::string::npos) << node.look(0);
}

TEST(Announcements, a_failure_is_named_as_the_cause) {
  Node node(2);
  node.start(0, 4);
  Failures failures(node.board->failures(1));
  failures.add({1, 4});
  failures.publish(4);
  node.finish(1, 4);
  const auto why = node.members[0].look();
  ASSERT_TRUE(why && why->origin);
  EXPECT_EQ(*why->origin, (Origin{1, 4}));
}

TEST(Announcements, a_member_that_went_on_without_one_is_named) {
  Node node(2);
  node.start(0, 4);
  node.start(0, 5);
  node.start(1, 5);
  for (int w = 0; w < 2; ++w)
    EXPECT_NE(node.look(w).find("worker 1 left the command without joining"), std::string::npos) << node.look(w);
}

TEST(Announcements, one_of_two_is_last_and_finds_what_differs) {
  for (const bool last_is_ahead : {false, true}) {
    Node node(2);
    for (uint64_t seq = 1; seq <= 200; ++seq) node.start(0, seq);
    for (uint64_t seq = 1; seq <= 5; ++seq) node.start(1, seq, seq == 3 ? 11 : 10);
    EXPECT_EQ(node.look(1), "");  // no more to be seen
    EXPECT_NE(node.look(0).find("have started different collectives"), std::string::npos) << node.look(0);
    for (uint64_t seq = 6; seq <= 200; ++seq) node.start(1, seq);
    for (const int w : {int{last_is_ahead}, int{!last_is_ahead}})
      EXPECT_NE(node.look(w).find("workers 0 and 1 have started different collectives"), std::string::npos) << node.look(w);
  }
}

TEST(Announcements, of_several_communicators_are_held_apart) {
  Node node(2);
  node.start(0, 1, 10, group_key(0));
  node.start(0, 1);
  node.start(1, 1);
  node.start(1, 1, 10, group_key(0));
  for (int w = 0; w < 2; ++w) EXPECT_EQ(node.look(w), "") << w;
  node.start(0, 2, 10, group_key(0));
  node.start(1, 2, 10, group_key(0), CollectiveOp::kBroadcast);
  EXPECT_NE(node.look(0).find("operands differ"), std::string::npos) << node.look(0);
}

TEST(Announcements, of_one_communicator_are_kept_beside_many_of_others) {
  for (const bool joins : {true, false}) {
    Node node(2);
    node.start(0, 1, 10, group_key(0));
    if (joins) node.start(1, 1, 10, group_key(0));
    for (uint64_t seq = 2; seq <= 300; ++seq) node.start(0, seq), node.start(1, seq);
    for (int w = 0; w < 2; ++w) node.finish(w, 300);
    EXPECT_EQ(node.look(0),
              joins ? "" : "allreduce: worker 1 left the command without joining; every member must call it in the same command");
    EXPECT_EQ(node.look(1), "");
  }
}

TEST(Announcements, of_more_communicators_than_there_is_room_for_accuse_nobody) {
  Node node(2);
  constexpr uint64_t kMany = 2 * Board::kSequences;
  for (int w = 0; w < 2; ++w) {
    for (uint64_t i = 1; i <= kMany; ++i) node.start(w, i, 10, group_key(static_cast<int>(i)));
    node.finish(w, kMany);
  }
  for (int w = 0; w < 2; ++w) EXPECT_EQ(node.look(w), "") << w;
  node.start(0, kMany + 1, 10, group_key(1));
  EXPECT_EQ(node.look(0), "");  // the other may have come, and its line be gone: it looks at ours
  node.start(1, kMany + 1, 11, group_key(1));
  EXPECT_NE(node.look(1).find("operands differ"), std::string::npos) << node.look(1);
  for (int w = 0; w < 2; ++w) node.members[static_cast<size_t>(w)].restart(kMany + 2);
  node.start(0, kMany + 2);
  node.finish(1, kMany + 2);
  EXPECT_NE(node.look(0).find("worker 1 left the command without joining"), std::string::npos) << node.look(0);
}

TEST(Announcements, of_many_communicators_in_turn_with_one_settle_each_time) {
  Node node(2);
  for (uint64_t i = 1; i <= 3 * Board::kSequences; ++i) {
    for (int w = 0; w < 2; ++w) {
      node.start(w, 1, 10, group_key(static_cast<int>(i)));
      node.start(w, 1);
    }
    for (int w = 0; w < 2; ++w) ASSERT_EQ(node.look(w), "") << i;
  }
}

TEST(Announcements, of_a_member_that_has_begun_anew_before_us_are_still_there) {
  for (const bool joins : {true, false}) {
    Node node(2);
    node.start(0, 1);
    if (joins) node.start(1, 1);
    node.finish(1, 2);
    node.members[1].restart(3);
    for (uint64_t seq = 3; seq <= 20; ++seq) node.start(1, seq);
    node.finish(1, 20);
    EXPECT_EQ(node.look(0).empty(), joins);
  }
}

TEST(Announcements, from_before_a_new_beginning_count_no_more) {
  Node node(2);
  node.start(0, 1);
  node.start(0, 2);
  node.members[0].restart(3);
  EXPECT_EQ(node.look(0), "");
  node.start(0, 3);
  EXPECT_EQ(node.look(0), "waits");
  node.start(1, 1);
  node.start(1, 2, 11);
  EXPECT_EQ(node.look(0), "waits");
  node.members[1].restart(3);
  node.start(1, 3);
  for (int w = 0; w < 2; ++w) EXPECT_EQ(node.look(w), "") << w;
}

TEST(Announcements, of_one_member_need_nobody) {
  Node node(1);
  node.start(0, 1);
  EXPECT_EQ(node.look(0), "");
}

TEST(AnnouncementsAcrossNodes, settle_when_all_have_come) {
  Nodes nodes;
  for (const uint64_t seq : {1, 2, 3}) {
    for (int w = 0; w < 4; ++w) {
      EXPECT_EQ(nodes.look(w), "") << w;
      EXPECT_EQ(nodes.look(0), w > 0 ? "waits" : "") << w;
      nodes.start(w, seq);
    }
    for (int w = 0; w < 4; ++w) EXPECT_EQ(nodes.look(w), "") << w;
  }
}

TEST(AnnouncementsAcrossNodes, that_differ_are_named) {
  for (const int who : {1, 2, 3}) {
    Nodes nodes;
    for (uint64_t seq = 1; seq <= 20; ++seq)
      for (int w = 0; w < 4; ++w) nodes.start(w, seq, seq == 5 && w == who ? 11 : 10);
    for (int w = 0; w < 4; ++w) {
      const std::string why = nodes.look(w), expected = "worker " + std::to_string(who) + ": allreduce sum of 11 float32";
      EXPECT_NE(why.find(expected), std::string::npos) << w << ": " << why;
    }
  }
}

TEST(AnnouncementsAcrossNodes, a_member_that_has_left_or_declined_is_named) {
  for (const bool declines : {false, true}) {
    Nodes nodes;
    for (const int w : {0, 1, 2}) nodes.start(w, 4);
    nodes.finish(3, 3);
    EXPECT_EQ(nodes.look(0), "waits");
    if (!declines) {
      nodes.finish(3, 4);
      EXPECT_NE(nodes.look(0).find("allreduce: worker 3 left the command without joining"), std::string::npos) << nodes.look(0);
      continue;
    }
    Arrival arrival{.worker = 3, .id = {world_key(), 4, 0}};
    arrival.left.emplace_back(arrival.id, Origin{3, 4});
    Writer out;
    encode(out, arrival);
    nodes.board_of(3).arrival(3).write(out.bytes());
    nodes.board_of(3).line(3, 1).write(1, ArrivalLine::key_of(arrival.id, {}), 0, 0, true);
    const auto start = Clock::now();
    const std::string at_first = nodes.look(0);
    EXPECT_TRUE(at_first == "waits" || Clock::now() - start > std::chrono::milliseconds(150)) << at_first;
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    EXPECT_NE(nodes.look(0).find("allreduce: worker 3 has left it after its failure at command 4"), std::string::npos);
  }
}

TEST(Announcements, a_member_that_has_declined_on_two_communicators_is_named) {
  Declined declined;
  const Announcement world{.key = ArrivalLine::key_of({world_key(), 4, 0}, {})};
  const Announcement group{.key = ArrivalLine::key_of({group_key(0), 4, 0}, {})};
  Arrival arrival{.worker = 3};
  for (const Announcement* one : {&world, &group}) arrival.left.emplace_back(one->id(), Origin{3, 4});
  (void)declined.look(world, 3, arrival);
  (void)declined.look(group, 3, arrival);
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  EXPECT_TRUE(declined.look(world, 3, arrival));
  EXPECT_TRUE(declined.look(group, 3, arrival));
}

TEST(AnnouncementsAcrossNodes, a_member_far_ahead_is_there_and_asks_in_turn) {
  Nodes nodes;
  for (int w = 0; w < 4; ++w) nodes.start(w, 1, w < 2 ? 10 : 11);
  for (uint64_t seq = 2; seq <= 200; ++seq) nodes.start(2, seq), nodes.start(3, seq);
  EXPECT_EQ(nodes.look(2), "waits");
  EXPECT_EQ(nodes.look(0), "");  // what the others have started first can't be seen any more
  for (uint64_t seq = 2; seq <= 200; ++seq) nodes.start(0, seq), nodes.start(1, seq);
  nodes.answer(2);
  for (const int w : {0, 2})
    EXPECT_NE(nodes.look(w).find("have started different collectives"), std::string::npos) << w << ": " << nodes.look(w);
}

TEST(AnnouncementsAcrossNodes, a_question_that_was_withdrawn_is_not_answered_by_mistake) {
  Nodes nodes;
  nodes.start(0, 1);
  EXPECT_EQ(nodes.look(0), "waits");
  for (int w = 1; w < 4; ++w) nodes.start(w, 1);
  nodes.members[0].withdraw();
  nodes.answer(0);
  for (const int w : {0, 1}) nodes.start(w, 2, 10, group_key(0));
  EXPECT_EQ(nodes.look(0), "waits");  // the answer is about world
  for (const int w : {2, 3}) nodes.start(w, 2, 10, group_key(0));
  EXPECT_EQ(nodes.look(0), "");
}

TEST(AnnouncementsAcrossNodes, one_that_agrees_on_what_others_have_started_is_found) {
  Nodes nodes;
  for (const int w : {0, 1, 2}) nodes.start(w, 4);
  Arrival arrival{.worker = 3, .id = {world_key(), 4, 0}, .members = {0, 1, 2, 3}};
  arrival.signature.op = CollectiveOp::kBarrier;
  Writer out;
  encode(out, arrival);
  nodes.board_of(3).arrival(3).write(out.bytes());
  nodes.board_of(3).line(3, 1).write(1, ArrivalLine::key_of(arrival.id, arrival.signature), 0, 0, true);
  EXPECT_NE(nodes.look(0).find("worker 3: barrier"), std::string::npos) << nodes.look(0);
}

TEST(Sequences, that_are_malformed_are_refused) {
  Sequence sequence(0, {0, 1}, 1, 64);
  for (uint64_t seq = 1; seq <= 3; ++seq) sequence.add(ArrivalLine::key_of({world_key(), seq, 0}, {}));
  Writer out;
  encode(out, sequence);
  const std::vector<std::byte> good = out.bytes();
  Reader in(good);
  EXPECT_EQ(decode_sequence(in).id(), sequence.id());
  for (size_t n = 0; n < good.size(); ++n) {
    Reader cut({good.data(), n});
    EXPECT_THROW((void)decode_sequence(cut), WireError) << n;
  }
  std::vector<std::byte> bad = good;
  bad[bad.size() - 12] = std::byte{9};  // the number of the last
  Reader other(bad);
  EXPECT_THROW((void)decode_sequence(other), WireError);
}

TEST(Announcements, are_read_while_they_are_written) {
  constexpr uint64_t kMany = 20000;
  Node node(3);
  std::vector<std::thread> threads;
  std::vector<std::string> found(3);
  std::atomic<bool> is_over = false;
  for (int w = 0; w < 3; ++w)
    threads.emplace_back([&, w] {
      for (uint64_t seq = 1; seq <= kMany && !is_over; ++seq) {
        node.start(w, seq, static_cast<int64_t>(seq));
        if (seq % 7 == 0)
          if (const std::string why = node.look(w); why != "waits" && !why.empty())
            found[static_cast<size_t>(w)] = why, is_over = true;
        node.finish(w, seq);
      }
      while (!is_over) {
        const std::string why = node.look(w);
        if (why.empty()) break;
        if (why != "waits") found[static_cast<size_t>(w)] = why, is_over = true;
        std::this_thread::yield();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& why : found) EXPECT_EQ(why, "");
}

}  // namespace
