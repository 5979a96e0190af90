// The contract of every control channel: the same suite on thread, process and mpi.
#include "control/channel/workers.h"

#include <gtest/gtest.h>

#include "control/launch.h"
#include "control/segment/ring.h"
#include "control/wire/command.h"
#include "support/session_kinds.h"
#include "tutti/function.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace std::chrono_literals;

const bool registered = [] {
  register_global_func("channel.throw", [](int64_t seq) { throw std::runtime_error(std::to_string(seq)); });
  register_global_func("channel.sleep_ms", [](int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
  return true;
}();

class Channels : public testing::Test {
 protected:
  void SetUp() override { workers_ = start_workers(tutti_test::kind(), count_, 1, exchange_, 30000ms); }
  void TearDown() override {
    send({.action = Action::kShutDown});
    EXPECT_TRUE(finished(seq_));
    workers_->close();
  }
  uint64_t send(Command command) {
    command.seq = ++seq_;
    workers_->channel().send(framed(encode(command)), [this] { take(); });
    return seq_;
  }
  void take() {
    while (auto bytes = workers_->channel().try_receive()) {
      Reply reply = decode_reply(*bytes);
      std::vector<Tensor> large;
      for (const Offer& offer : reply.offers) large.push_back(workers_->transfers().take(reply.worker, offer, [] {}));
      reply.value = put_together(reply.value, large);
      workers_->transfers().settle(reply.worker, reply.seq);
      replies_.push_back(std::move(reply));
    }
  }
  bool finished(uint64_t seq) {
    return workers_->channel().wait(Clock::now() + 20s, 0, [&] {
      take();
      return workers_->channel().finished() >= seq;
    });
  }

  int count_ = tutti_test::workers();
  Exchange exchange_;
  std::unique_ptr<Workers> workers_;
  uint64_t seq_ = 0;
  std::vector<Reply> replies_;
};

TEST_F(Channels, every_worker_finishes_every_command_in_order) {
  uint64_t last = 0;
  for (int i = 0; i < 20000; ++i) last = send({.action = Action::kKillReg, .freed = {1 + i % 7}});
  EXPECT_TRUE(finished(last));
  EXPECT_EQ(workers_->channel().finished(), last);
}

TEST_F(Channels, a_program_that_links_statically_has_the_functions_of_modules) {
  send({.action = Action::kGetGlobalFunc, .reg = 1, .name = "runtime.disco.load_vm_module"});
  ASSERT_TRUE(finished(seq_));
  take();
  EXPECT_TRUE(replies_.empty());
}

TEST_F(Channels, replies_come_before_the_news_that_their_command_is_finished) {
  send({.action = Action::kGetGlobalFunc, .reg = 1, .name = "channel.throw"});
  const uint64_t seq = send({.action = Action::kCallPacked, .reg = 2, .func = 1, .args = {7}});
  ASSERT_TRUE(finished(seq));
  take();
  ASSERT_EQ(replies_.size(), static_cast<size_t>(count_));
  std::vector<bool> seen(static_cast<size_t>(count_));
  for (const Reply& reply : replies_) {
    EXPECT_EQ(reply.kind, Reply::Kind::kError);
    EXPECT_EQ(reply.failure.message, "7");
    EXPECT_EQ(reply.seq, seq);
    seen[static_cast<size_t>(reply.worker)] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), count_);
}

TEST_F(Channels, commands_and_replies_larger_than_the_rings) {
  const Tensor big = Tensor::full<float>({3 << 20}, 2.5);
  const int last = count_ - 1;
  send({.action = Action::kDebugSetRegister, .reg = 1, .worker = last, .args = {big}});
  const uint64_t seq = send({.action = Action::kDebugGetFromRemote, .reg = 1, .worker = last});
  EXPECT_TRUE(finished(seq));
  take();
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].kind == Reply::Kind::kToken ? exchange_.take(replies_[0].token) : replies_[0].value, Value(big));
}

TEST_F(Channels, sync_of_one_worker_is_acknowledged_by_it_alone) {
  for (int worker = 0; worker < count_; ++worker) {
    const uint64_t seq = send({.action = Action::kSyncWorker, .worker = worker});
    ASSERT_TRUE(finished(seq));
    take();
    ASSERT_EQ(replies_.size(), static_cast<size_t>(worker + 1));
    EXPECT_EQ(replies_.back().kind, Reply::Kind::kAck);
    EXPECT_EQ(replies_.back().worker, worker);
  }
}

TEST_F(Channels, a_wait_ends_at_its_deadline_and_the_channel_goes_on) {
  send({.action = Action::kGetGlobalFunc, .reg = 1, .name = "channel.sleep_ms"});
  const uint64_t seq = send({.action = Action::kCallPacked, .reg = 2, .func = 1, .args = {200}});
  const auto start = Clock::now();
  EXPECT_FALSE(workers_->channel().wait(start + 20ms, 0, [&] { return workers_->channel().finished() >= seq; }));
  EXPECT_GE(Clock::now() - start, 20ms);
  EXPECT_TRUE(finished(seq));
}

TEST_F(Channels, issuing_waits_for_nobody_until_a_ring_is_full) {
  send({.action = Action::kGetGlobalFunc, .reg = 1, .name = "channel.sleep_ms"});
  const uint64_t seq = send({.action = Action::kCallPacked, .reg = 2, .func = 1, .args = {300}});
  for (int i = 0; i < 1000; ++i) send({.action = Action::kKillReg});
  EXPECT_LT(workers_->channel().finished(), seq);  // they still sleep
  std::vector<int64_t> many(100000);
  for (int64_t& id : many) id = 3;
  for (int i = 0; i < 20; ++i) send({.action = Action::kKillReg, .freed = many});  // 16 MB: more than any ring
  EXPECT_GE(workers_->channel().finished(), seq);                                  // so somebody had to read
  EXPECT_TRUE(finished(seq_));
}

TEST(ChannelTable, refuses_unknown_names) {
  Exchange exchange;
  EXPECT_THROW(start_workers("pigeon", 2, 1, exchange, 1000ms), UsageError);
}

}  // namespace
