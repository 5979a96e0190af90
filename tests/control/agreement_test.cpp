// The members of a node on a segment of their own: no session, no commands.
#include "control/worker_agreement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <new>

namespace {

thread_local bool has_no_memory = false;

}  // namespace

// not inlined: g++ takes new and free for a mismatch where it sees into one of them only
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (has_no_memory) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

using namespace tutti;
using namespace std::chrono_literals;

constexpr uint64_t kCommand = 7;

/// A worker of a node, as far as collectives go.
struct Member {
  Member(Segment& segment, int id)
      : worker(id), recorder(segment.recorder(id)), faults(id), agreement(segment, id, segment.wait_policy(), recorder, faults) {
    for (int w = 0; w < segment.layout().num_workers; ++w) members.push_back(w);
    agreement.begin_command(kCommand);
  }
  Arrival arrival(int64_t count, CollectiveOp op = CollectiveOp::kAllreduce) {
    return {.id = agreement.next_id(world_key()), .signature = {.op = op, .dtype = kFloat32, .count = count}, .members = members};
  }
  /// A whole collective that moves nothing.
  size_t join(int64_t count, CollectiveOp op = CollectiveOp::kAllreduce) {
    Arrival mine = arrival(count, op);
    try {
      const size_t arrivals = agreement.agree(mine).size();
      agreement.ends(true);
      return arrivals;
    } catch (const TransportError&) {
      agreement.lost();
      throw;
    } catch (...) {
      agreement.ends(false);
      throw;
    }
  }

  int worker;
  Recorder recorder;
  Faults faults;
  WorkerAgreement agreement;
  std::vector<int32_t> members;
};

struct Node {
  explicit Node(int workers) : segment(Segment::Kind::kPrivate, Layout::one_node(workers, 1), 0) {
    for (int w = 0; w < workers; ++w) members.push_back(std::make_unique<Member>(segment, w));
  }
  Segment segment;
  std::vector<std::unique_ptr<Member>> members;
};

template <class F>
auto on_thread(F f) {
  return std::async(std::launch::async, std::move(f));
}

template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing, or something else, was thrown";
  return {};
}

class NodeOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Agreement, NodeOf, testing::Values(1, 2, 3, 4, 8));
class NodeOfSeveral : public NodeOf {};
INSTANTIATE_TEST_SUITE_P(Agreement, NodeOfSeveral, testing::Values(2, 3, 4, 8));

TEST_P(NodeOf, members_that_join_alike_agree) {
  Node node(GetParam());
  std::vector<std::future<void>> all;
  for (auto& member : node.members)
    all.push_back(on_thread([&, m = member.get()] {
      for (const CollectiveOp op : {CollectiveOp::kAllreduce, CollectiveOp::kBroadcast, CollectiveOp::kBarrier})
        for (int64_t i = 0; i < 200; ++i) ASSERT_EQ(m->join(i, op), node.members.size());
    }));
  for (auto& one : all) one.get();
}

TEST_P(NodeOfSeveral, members_that_differ_hear_of_it_and_agree_on_the_next) {
  Node node(GetParam());
  std::vector<std::future<void>> all;
  for (auto& member : node.members)
    all.push_back(on_thread([&, m = member.get()] {
      EXPECT_THROW(m->join(m->worker == 0 ? 4 : 5), Error) << m->worker;
      EXPECT_EQ(m->join(6), node.members.size());
    }));
  for (auto& one : all) one.get();
}

TEST_P(NodeOf, a_member_that_declines_ends_the_wait_of_the_others) {
  Node node(GetParam());
  std::vector<std::future<void>> all;
  for (auto& member : node.members)
    all.push_back(on_thread([&, m = member.get()] {
      if (m->worker == 0) m->agreement.decline(m->arrival(4).id);
      else EXPECT_THROW(m->join(4), ConsequenceError) << m->worker;
      EXPECT_EQ(m->join(5), node.members.size());
    }));
  for (auto& one : all) one.get();
}

// the first has gone, with its memory: what its line says is true no longer
TEST(Agreement, who_comes_late_to_a_lost_session_does_not_agree) {
  Node node(2);
  auto first = on_thread([&] { message_of<TransportError>([&] { node.members[0]->join(4); }); });
  while (node.segment.arrival_line(0, 1).version() != 2) std::this_thread::yield();
  node.segment.abandon("for a test");
  first.get();
  EXPECT_NE(message_of<TransportError>([&] { node.members[1]->join(4); }).find("for a test"), std::string::npos);
}

TEST(Agreement, who_loses_the_session_waits_for_those_that_move_data) {
  Node node(2);
  std::atomic<bool> has_agreed{false}, moves{true};
  auto moving = on_thread([&] {
    Arrival mine = node.members[0]->arrival(4);
    node.members[0]->agreement.agree(mine);
    has_agreed = true;
    std::this_thread::sleep_for(50ms);
    moves = false;
    node.members[0]->agreement.ends(true);
  });
  Arrival mine = node.members[1]->arrival(4);
  node.members[1]->agreement.agree(mine);
  while (!has_agreed) std::this_thread::yield();
  node.segment.abandon("for a test");
  node.members[1]->agreement.lost();
  EXPECT_FALSE(moves);
  moving.get();
}

TEST(Agreement, a_member_without_memory_ends_the_session) {
  for (const auto op : {CollectiveOp::kAllreduce, CollectiveOp::kBroadcast}) {
    Node node(2);
    auto first = on_thread([&] {
      return message_of<TransportError>([&] {
        node.members[0]->join(4, op);
        node.members[0]->join(5, op);
      });
    });
    auto second = on_thread([&] {
      Arrival mine = node.members[1]->arrival(4, op);
      has_no_memory = true;
      try {
        node.members[1]->agreement.agree(mine);
        ADD_FAILURE() << "there was memory";
      } catch (const std::exception&) {
      }
      has_no_memory = false;
      node.members[1]->agreement.lost();
    });
    second.get();
    EXPECT_NE(first.get().find("has no memory left, inside a collective that the others may have agreed on"), std::string::npos);
  }
}

}  // namespace
