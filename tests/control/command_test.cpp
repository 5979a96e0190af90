#include "control/wire/command.h"

#include <gtest/gtest.h>

#include <random>

#include "control/worker/register_file.h"
#include "tutti/action.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

std::vector<Command> examples() {
  Command base{.seq = 77, .site = 5, .acknowledged = {{2, 9}, {0, 3}}, .loss = {5, {2, 9}}, .freed = {4, 5, 6}};
  std::vector<Command> all;
  for (int action = 0; action <= 8; ++action) {
    Command c = base;
    c.action = static_cast<Action>(action);
    c.reg = 12;
    if (c.action == Action::kGetGlobalFunc) c.name = "a.b";
    if (c.action == Action::kCallPacked) c.func = 3, c.args = {1, "x", RegisterRef{0, 9}, List{2.0}};
    if (c.action == Action::kCopyToWorker0) c.is_new = true;
    if (c.action == Action::kSyncWorker || c.action == Action::kDebugGetFromRemote) c.worker = 2;
    if (c.action == Action::kDebugSetRegister)
      c.worker = 1, c.args = {Shape{1, 2}}, c.offers = {{.dtype = kFloat32, .shape = {100, 1000}, .place = {}}};
    all.push_back(c);
  }
  return all;
}

TEST(Command, actions_keep_disco_s_numbers_and_names) {
  using enum DiscoAction;
  const DiscoAction in_disco_s_order[] = {kShutDown,        kKillReg,       kGetGlobalFunc,      kCallPacked,      kSyncWorker,
                                          kCopyFromWorker0, kCopyToWorker0, kDebugGetFromRemote, kDebugSetRegister};
  for (int number = 0; number < 9; ++number) EXPECT_EQ(static_cast<int>(in_disco_s_order[number]), number);
  EXPECT_STREQ(to_string(static_cast<Action>(0)), "shut_down");
  EXPECT_STREQ(to_string(static_cast<Action>(3)), "call_packed");
  EXPECT_STREQ(to_string(static_cast<Action>(8)), "debug_set_register");
  EXPECT_STREQ(to_string(static_cast<Action>(9)), "unknown action");
}

TEST(Command, round_trips_and_believes_no_prefix) {
  for (const Command& c : examples()) {
    const auto bytes = encode(c);
    const Command d = decode_command(bytes);
    EXPECT_EQ(d.action, c.action);
    EXPECT_EQ(d.seq, c.seq);
    EXPECT_EQ(d.acknowledged, c.acknowledged);
    EXPECT_EQ(d.loss, c.loss);
    EXPECT_EQ(d.freed, c.freed);
    EXPECT_EQ(d.is_new, c.is_new);
    EXPECT_EQ(d.args, c.args);
    EXPECT_EQ(encode(d), bytes);
    for (size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_THROW(decode_command(std::span(bytes).first(cut)), WireError);
    auto longer = bytes;
    longer.push_back({});
    EXPECT_THROW(decode_command(longer), WireError);
  }
}

TEST(Command, damaged_bytes_are_refused_or_decode_but_never_crash) {
  std::mt19937 random(1);
  for (const Command& c : examples())
    for (int i = 0; i < 2000; ++i) {
      auto bytes = encode(c);
      for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      try {
        decode_command(bytes);
      } catch (const WireError&) {
      }
    }
}

TEST(Command, another_version_is_named) {
  auto bytes = encode(examples()[0]);
  bytes[0] = std::byte{9};
  try {
    decode_command(bytes);
    FAIL();
  } catch (const WireError& error) {
    EXPECT_NE(std::string(error.what()).find("wire version 9, expected " + std::to_string(kWireVersion)), std::string::npos);
  }
}

TEST(Reply, round_trips) {
  Reply r{.kind = Reply::Kind::kError, .worker = 3, .seq = 8, .origin = {3, 8}, .site = 2};
  r.failure = {.host = "h", .pid = 9, .kind = "k", .message = "m", .function = "f", .traceback = "t"};
  const Reply d = decode_reply(encode(r));
  EXPECT_EQ(d.failure.message, "m");
  EXPECT_EQ(d.failure.traceback, "t");
  EXPECT_EQ(d.failure.worker, 3);
  EXPECT_EQ(d.origin, r.origin);
}

TEST(RegisterFile, register_0_is_reserved_and_ids_are_checked) {
  RegisterFile registers;
  EXPECT_THROW(registers.set(0, 1), WireError);
  EXPECT_THROW(registers.set(-4, 1), WireError);
  EXPECT_THROW(registers.get(int64_t{1} << 50), WireError);
  registers.set(5, "x");
  EXPECT_EQ(registers.get(5).value, Value("x"));
  registers.lose(5, {1, 2});
  EXPECT_EQ(registers.get(5).lost, (Origin{1, 2}));
  registers.set(5, 1);
  EXPECT_FALSE(registers.get(5).lost);
}

}  // namespace
