// What a controller keeps: register ids, failures, call sites, the flusher. Without a session.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "control/controller/failure_ledger.h"
#include "control/controller/flusher.h"
#include "control/controller/registers.h"
#include "control/controller/sites.h"

namespace {

using namespace tutti;
using namespace tutti::detail;
using namespace std::chrono_literals;

TEST(Registers, an_id_is_given_out_again_once_a_command_frees_it) {
  Registers registers;
  std::vector<int64_t> freed;
  EXPECT_EQ(registers.next(freed, true), 1);
  EXPECT_EQ(registers.next(freed, true), 2);
  EXPECT_EQ(registers.next(freed, false), 0);
  EXPECT_TRUE(freed.empty());
  registers.drop(1);
  EXPECT_TRUE(registers.any_dropped());
  EXPECT_EQ(registers.next(freed, true), 1);  // by the same command: a worker frees before it executes
  EXPECT_EQ(freed, std::vector<int64_t>{1});
  EXPECT_FALSE(registers.any_dropped());
  EXPECT_EQ(registers.next(freed, true), 3);
  EXPECT_TRUE(freed.empty());
}

TEST(Registers, one_command_frees_so_many_at_most) {
  Registers registers;
  std::vector<int64_t> freed;
  for (int64_t id = 1; id <= 1500; ++id) registers.next(freed, true);
  for (int64_t id = 1; id <= 1500; ++id) registers.drop(id);
  registers.next(freed, false);
  EXPECT_EQ(freed.size(), 1024u);
  registers.next(freed, false);
  EXPECT_EQ(freed.size(), 476u);
}

Reply report(int worker, uint64_t seq, std::optional<Origin> of = {}) {
  Reply reply{.kind = of ? Reply::Kind::kConsequence : Reply::Kind::kError,
              .worker = worker,
              .seq = seq,
              .origin = of.value_or(Origin{worker, seq})};
  reply.failure = {.worker = worker, .seq = seq, .message = "of worker " + std::to_string(worker)};
  return reply;
}

std::vector<Origin> acknowledged(FailureLedger& ledger) {
  Command command;
  ledger.acknowledge(command);
  return command.acknowledged;
}

TEST(FailureLedger, the_latest_loss_of_a_device_goes_with_an_acknowledgement) {
  FailureLedger ledger;
  const auto with_loss = [](int worker, uint64_t seq, uint64_t since) {
    Reply of = report(worker, seq);
    of.loss = {since, of.origin};
    return of;
  };
  ledger.add(with_loss(0, 5, 3));
  ledger.add(with_loss(1, 6, 4));
  ledger.add(with_loss(2, 7, 3));
  Command command;  // used again, as the controller does
  ledger.acknowledge(command);
  EXPECT_EQ(command.loss, DeviceLoss());  // nothing has been raised
  ledger.raise();
  command.action = Action::kGetGlobalFunc;  // a look-up keeps what it finds
  ledger.acknowledge(command);
  EXPECT_TRUE(command.acknowledged.empty());
  command.action = Action::kCallPacked;
  ledger.acknowledge(command);
  EXPECT_EQ(command.acknowledged.size(), 3u);
  EXPECT_EQ(command.loss.since, 4u);
  EXPECT_EQ(command.loss.origin.worker, 1);
  ledger.acknowledge(command);
  EXPECT_TRUE(command.acknowledged.empty());
  EXPECT_EQ(command.loss, DeviceLoss());
}

TEST(FailureLedger, a_consequence_is_told_by_its_origin_alone) {
  FailureLedger ledger;
  ledger.add(report(1, 5, Origin{0, 5}));
  ledger.add(report(2, 5, Origin{0, 5}));
  EXPECT_EQ(ledger.silent(), std::set<int>{0});
  EXPECT_NE(ledger.not_raised().find("of worker 2"), std::string::npos);
  ledger.add(report(0, 5));
  EXPECT_TRUE(ledger.silent().empty());
  const auto failures = ledger.raise();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].worker, 0);
  EXPECT_EQ(acknowledged(ledger), std::vector<Origin>({Origin{0, 5}}));
  EXPECT_TRUE(acknowledged(ledger).empty());
  ledger.add(report(3, 6, Origin{0, 5}));  // late: it was raised
  EXPECT_TRUE(ledger.silent().empty());
  EXPECT_TRUE(ledger.raise().empty());
  EXPECT_TRUE(ledger.not_raised().empty());
  EXPECT_EQ(acknowledged(ledger), std::vector<Origin>({Origin{0, 5}}));  // again, for the one who has heard of it since
}

TEST(FailureLedger, one_consequence_stands_for_an_origin_that_stays_silent) {
  FailureLedger ledger;
  ledger.add(report(1, 5, Origin{0, 5}));
  ledger.add(report(2, 5, Origin{0, 5}));
  const auto failures = ledger.raise();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].worker, 1);
  EXPECT_EQ(acknowledged(ledger), std::vector<Origin>({Origin{0, 5}}));
  ASSERT_NE(ledger.raised(Origin{0, 5}), nullptr);
  EXPECT_EQ(ledger.raised(Origin{0, 6}), nullptr);
}

TEST(FailureLedger, remembers_the_last_ones_and_their_ends) {
  FailureLedger ledger;
  for (uint64_t seq = 1; seq <= 1100; ++seq) {
    Reply reply = report(0, seq);
    if (seq == 1100) reply.failure.message = "begin " + std::string(100'000, 'x') + " end";
    ledger.add(std::move(reply));
  }
  EXPECT_EQ(ledger.raise().size(), 1100u);
  EXPECT_EQ(ledger.raised(Origin{0, 76}), nullptr);
  ASSERT_NE(ledger.raised(Origin{0, 77}), nullptr);
  const std::string& message = ledger.raised(Origin{0, 1100})->message;
  EXPECT_LT(message.size(), 17'000u);
  EXPECT_TRUE(message.starts_with("begin ") && message.ends_with(" end"));
  EXPECT_NE(message.find("bytes are left out"), std::string::npos);
}

TEST(Sites, a_place_has_one_number) {
  Sites sites;
  const uint32_t first = sites.number({"a.cpp", 3}), second = sites.number({"b.cpp", 3});
  EXPECT_NE(first, second);
  EXPECT_EQ(sites.number({"a.cpp", 3}), first);
  EXPECT_EQ(sites.text(second), "b.cpp:3");
  EXPECT_EQ(sites.text(sites.number({"", 0})), "");
  EXPECT_EQ(sites.text(1000), "");
}

TEST(Flusher, flushes_what_nobody_else_takes_and_then_sleeps) {
  std::atomic<int> looks{0}, flushes{0};
  std::atomic<bool> has_work{false};
  Flusher flusher(
      [&] {
        ++looks;
        return has_work.load();
      },
      [&] {
        ++flushes;
        has_work = false;
      });
  for (int round = 1; round <= 3; ++round) {
    has_work = true;
    while (flushes < round) flusher.wake(), std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(200ms);  // it has come to rest by now
  const int before = looks;
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(looks, before);
  flusher.stop();
  EXPECT_EQ(flushes, 3);
}

TEST(Flusher, ends_at_once_whatever_it_does) {
  for (int round = 0; round < 100; ++round) {
    Flusher flusher([] { return true; }, [] {});
    if (round % 2) flusher.wake();
  }
}

}  // namespace
