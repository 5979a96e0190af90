// The members of a node on a board of their own: no session, no commands.
#include "agreement/worker_agreement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <mutex>
#include <new>
#include <numeric>

#include "agreement/board_view.h"
#include "core/shared_memory.h"

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
using namespace tutti::detail;
using namespace std::chrono_literals;

constexpr uint64_t kCommand = 7;

/// A worker of a node, as far as collectives go.
struct Member : ControlPlane {
  Member(Board& board, int id)
      : board(board),
        worker(id),
        members(board.workers()),
        agreement(board, id, collective_wait_policy(board.num_workers(), allowed_cores()), *this) {
    agreement.begin_command(kCommand);
  }
  void begins(const CollectiveId& id, const Signature&) override { waits_in(id); }
  void agreed() noexcept override { waits_in(std::nullopt); }
  void ends(bool) noexcept override { waits_in(std::nullopt); }
  void tell_leader() noexcept override { ++told_leader; }
  std::vector<MemberState> look() override;  // as control's look_at(), which reads recorders
  void abandon(std::string_view why) override { board.mark_abandoned(why); }

  Arrival arrival(int64_t count, CollectiveOp op = CollectiveOp::kAllreduce, CommKey comm = world_key()) {
    return {.id = agreement.next_id(comm),
            .signature = {.op = op, .dtype = kFloat32, .count = count},
            .members = members,
            .hears_of_all = op == CollectiveOp::kAllreduce && count > 0};  // though none moves: whoever comes next has seen all
  }
  /// A whole collective that moves nothing.
  size_t join(int64_t count, CollectiveOp op = CollectiveOp::kAllreduce, CommKey comm = world_key()) {
    Arrival mine = arrival(count, op, comm);
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
  void waits_in(std::optional<CollectiveId> id) noexcept {
    const std::lock_guard lock(mutex);
    waits = id;
  }

  Board& board;
  int worker;
  std::vector<int32_t> members;
  std::vector<Member*> node;
  std::mutex mutex;
  std::optional<CollectiveId> waits;
  std::atomic<int> told_leader{0};
  WorkerAgreement agreement;
};

std::vector<MemberState> Member::look() {
  std::vector<MemberState> states;
  for (Member* member : node) {
    MemberState s{.worker = member->worker, .kind = MemberState::Kind::kIdle};
    const std::lock_guard lock(member->mutex);
    if (member->waits) {
      s.kind = MemberState::Kind::kWaits;
      s.id = *member->waits;
      s.doing = "collective of " + std::to_string(s.id.comm & 0xff);
      s.members = member->members;
      if (const auto arrival = BoardView(board).arrival(member->worker))
        for (const auto& [id, origin] : arrival->left) s.left.push_back(id);
      s.joined = BoardView(board).joined(member->worker);
      std::erase_if(s.joined, [&](const CollectiveId& id) { return std::ranges::count(s.left, id) != 0; });
    }
    states.push_back(std::move(s));
  }
  return states;
}

std::vector<int32_t> up_to(int n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

struct Node {
  explicit Node(int workers)
      : memory(SharedMemory::create_private(Board::size_bytes(workers, static_cast<size_t>(workers)))),
        board(memory.data(), workers, up_to(workers)) {
    for (int w = 0; w < workers; ++w) members.push_back(std::make_unique<Member>(board, w));
    for (auto& member : members)
      for (auto& other : members) member->node.push_back(other.get());
  }
  Member& operator[](size_t worker) { return *members[worker]; }
  size_t size() const { return members.size(); }

  /// On a thread of its own; nobody waits for one that has thrown what the test does not expect.
  template <class F>
  auto on_thread(F f) {
    return std::async(std::launch::async, [this, f = std::move(f)] {
      try {
        return f();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
        board.mark_abandoned(error.what());
        throw;
      }
    });
  }
  template <class F>
  void on_each(const F& f) {
    std::vector<std::future<void>> all;
    for (auto& member : members) all.push_back(on_thread([&f, m = member.get()] { f(*m); }));
    for (auto& one : all) one.get();
  }

  SharedMemory memory;
  Board board;
  std::vector<std::unique_ptr<Member>> members;
};

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
  node.on_each([&](Member& m) {
    for (const CollectiveOp op : {CollectiveOp::kAllreduce, CollectiveOp::kBroadcast, CollectiveOp::kBarrier})
      for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(m.join(i, op), node.size());
    EXPECT_EQ(m.told_leader, 0);
  });
}

TEST_P(NodeOfSeveral, members_that_differ_hear_of_it_and_agree_on_the_next) {
  Node node(GetParam());
  node.on_each([&](Member& m) {
    EXPECT_THROW(m.join(m.worker == 0 ? 4 : 5), Error) << m.worker;
    EXPECT_EQ(m.join(6), node.size());
    EXPECT_GT(m.told_leader, 0);
  });
}

TEST_P(NodeOf, a_member_that_declines_ends_the_wait_of_the_others) {
  Node node(GetParam());
  node.on_each([&](Member& m) {
    if (m.worker == 0) m.agreement.decline(m.arrival(4).id);
    else EXPECT_THROW(m.join(4), ConsequenceError) << m.worker;
    EXPECT_EQ(m.join(5), node.size());
  });
}

TEST_P(NodeOfSeveral, members_that_wait_for_each_other_hear_of_it) {
  Node node(GetParam());
  std::atomic<int> deadlocks{0};
  node.on_each([&](Member& m) {
    for (const int group : m.worker == 0 ? std::vector{1, 2} : std::vector{2, 1}) try {
        m.join(4, CollectiveOp::kBroadcast, group_key(group));  // in an allreduce one could go on and leave the next, unseen
      } catch (const UsageError& error) {
        EXPECT_NE(std::string(error.what()).find("deadlock in command 7: worker 0 waits in"), std::string::npos) << error.what();
        ++deadlocks;
      } catch (const ConsequenceError&) {
      }
    EXPECT_EQ(m.join(5), node.size());
  });
  EXPECT_GT(deadlocks, 0);
}

// the first has gone, with its memory: what its line says is true no longer
TEST(Agreement, who_comes_late_to_a_lost_session_does_not_agree) {
  Node node(2);
  auto first = node.on_thread([&] { message_of<TransportError>([&] { node[0].join(4); }); });
  while (node.board.line(0, 1).version() != 2) std::this_thread::yield();
  node.board.mark_abandoned("for a test");
  first.get();
  EXPECT_NE(message_of<TransportError>([&] { node[1].join(4); }).find("for a test"), std::string::npos);
}

TEST(Agreement, who_loses_the_session_waits_for_those_that_move_data) {
  Node node(2);
  std::atomic<bool> has_agreed{false}, moves{true};
  auto moving = node.on_thread([&] {
    Arrival mine = node[0].arrival(4);
    node[0].agreement.agree(mine);
    has_agreed = true;
    std::this_thread::sleep_for(50ms);
    moves = false;
    node[0].agreement.ends(true);
  });
  Arrival mine = node[1].arrival(4);
  node[1].agreement.agree(mine);
  while (!has_agreed) std::this_thread::yield();
  node.board.mark_abandoned("for a test");
  const auto begin = Clock::now();
  node[1].agreement.lost();
  EXPECT_TRUE(!moves || Clock::now() - begin >= 400ms);  // it does not wait for longer
  moving.get();
}

TEST(Agreement, a_member_without_memory_ends_the_session) {
  for (const auto op : {CollectiveOp::kAllreduce, CollectiveOp::kBroadcast}) {
    Node node(2);
    auto first = node.on_thread([&] {
      return message_of<TransportError>([&] {
        node[0].join(4, op);
        node[0].join(5, op);
      });
    });
    auto second = node.on_thread([&] {
      Arrival mine = node[1].arrival(4, op);
      bool has_failed = false;
      has_no_memory = true;
      try {
        node[1].agreement.agree(mine);
      } catch (const std::exception&) {
        has_failed = true;
      }
      has_no_memory = false;
      EXPECT_TRUE(has_failed);
      if (!has_failed) node.board.mark_abandoned("there was memory");
      node[1].agreement.lost();
    });
    second.get();
    EXPECT_NE(first.get().find("has no memory left, inside a collective that the others may have agreed on"), std::string::npos);
  }
}

}  // namespace
