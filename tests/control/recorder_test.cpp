#include "control/segment/recorder.h"

#include <gtest/gtest.h>

#include <thread>

#include "control/watch/worker_state.h"

namespace {

using namespace tutti;
using namespace tutti::detail;

struct Memory {
  alignas(64) std::byte bytes[Recorder::kBytes] = {};
};

TEST(Recorder, records_commands_and_their_collectives) {
  auto memory = std::make_unique<Memory>();
  Recorder writer(memory->bytes);
  const Recorder reader(memory->bytes);
  EXPECT_TRUE(reader.read().empty());
  EXPECT_FALSE(reader.last(Record::What::kCommand));
  const Signature signature{
      .op = CollectiveOp::kReduceScatter, .reduce = ReduceOp::kMax, .dtype = kBFloat16, .root = 3, .count = int64_t{1} << 40};
  writer.begin_command(7, Action::kCallPacked);
  writer.name_function(ShortName("a.function.with.a.name.of.more.than.31.characters"));
  writer.begin_collective({.comm = group_key(2), .seq = 7, .index = 5}, signature);
  ASSERT_TRUE(reader.last(Record::What::kCollective)->running());
  EXPECT_EQ(reader.last(Record::What::kCollective)->agreed, 0u);
  writer.agreed();
  writer.end_collective(Record::State::kDone);
  EXPECT_TRUE(reader.last(Record::What::kCommand)->running());
  writer.end_command(Record::State::kFailed);
  const auto records = reader.read();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].seq, 7u);
  EXPECT_EQ(records[0].action, Action::kCallPacked);
  EXPECT_EQ(records[0].function, "a.function.with.a.name.of.more.");
  EXPECT_EQ(records[0].state, Record::State::kFailed);
  EXPECT_EQ(records[1].signature, signature);
  EXPECT_EQ(records[1].id, (CollectiveId{group_key(2), 7, 5}));
  EXPECT_LE(records[1].begin, records[1].agreed);
  EXPECT_LE(records[1].agreed, records[1].end);
  EXPECT_EQ(describe(records[1].id, records[1].signature), "reduce_scatter #5 of group 2 (max bfloat16 x 1099511627776)");
}

TEST(Recorder, records_steps_of_programs) {
  auto memory = std::make_unique<Memory>();
  Recorder writer(memory->bytes);
  const Recorder reader(memory->bytes);
  writer.begin_command(7, Action::kCallPacked);
  const uint64_t first = writer.add_step(7, 1, ShortName("a.f"), ticks(), Record::State::kDone);
  EXPECT_GE(writer.add_step(7, 70000, ShortName("b.g"), first, Record::State::kFailed), first);
  EXPECT_TRUE(reader.last(Record::What::kCommand)->running());
  writer.end_command(Record::State::kDone);
  const auto records = reader.read();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].what, Record::What::kCommand);
  EXPECT_EQ(records[0].state, Record::State::kDone);
  EXPECT_EQ(records[2].what, Record::What::kStep);
  EXPECT_EQ(records[2].step, 70000u);
  EXPECT_EQ(records[2].seq, 7u);
  EXPECT_EQ(records[2].function, "b.g");
  EXPECT_EQ(records[2].begin, records[1].end);
  EXPECT_EQ(records[1].state, Record::State::kDone);
  EXPECT_EQ(records[2].state, Record::State::kFailed);
}

TEST(Recorder, keeps_the_last_and_a_command_that_its_collectives_overwrote_comes_when_it_ends) {
  auto memory = std::make_unique<Memory>();
  Recorder recorder(memory->bytes);
  recorder.begin_command(1, Action::kCallPacked);
  for (uint32_t i = 0; i < 3 * Recorder::kRecords; ++i) {
    recorder.begin_collective({.comm = 0, .seq = 1, .index = i}, {});
    recorder.end_collective(Record::State::kDone);
  }
  recorder.name_function(ShortName("a.function"));
  EXPECT_FALSE(recorder.last(Record::What::kCommand));
  recorder.end_command(Record::State::kFailed);
  auto records = recorder.read();
  EXPECT_GE(records.size(), Recorder::kRecords - 2);
  EXPECT_EQ(records.back().what, Record::What::kCommand);
  EXPECT_EQ(records.back().state, Record::State::kFailed);
  EXPECT_EQ(records.back().function, "a.function");
  EXPECT_LE(records.back().begin, records.front().begin);
  records.pop_back();
  for (const Record& r : records) EXPECT_EQ(r.what, Record::What::kCollective);
  EXPECT_EQ(records.back().id.index, 3 * Recorder::kRecords - 1);
}

TEST(Recorder, is_read_while_it_is_written) {
  auto memory = std::make_unique<Memory>();
  std::atomic<bool> ends{false};
  std::thread thread([&] {
    Recorder writer(memory->bytes);
    for (uint64_t seq = 1; !ends; ++seq) {
      writer.begin_command(seq, Action::kCallPacked);
      writer.name_function(ShortName(std::to_string(seq)));
      writer.end_command(Record::State::kDone);
    }
  });
  const Recorder reader(memory->bytes);
  for (int i = 0; i < 200; ++i) {
    uint64_t before = 0;
    for (const Record& r : reader.read()) {
      EXPECT_GT(r.seq, before);  // whole records, in order
      before = r.seq;
      EXPECT_TRUE(r.running() || r.function == std::to_string(r.seq)) << r.function;
    }
  }
  ends = true;
  thread.join();
}

TEST(Recorder, ticks_are_time) {
  const TickScale scale;
  const uint64_t begin = ticks();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double seconds = scale.seconds_between(begin, ticks());
  EXPECT_GT(seconds, 0.04);
  EXPECT_LT(seconds, 5);
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(static_cast<double>(scale.wall_ns(ticks())) * 1e-9, now, 1);
}

TEST(WorkerState, travels) {
  WorkerState state;
  state.worker = 3;
  state.kind = WorkerState::Kind::kWaits;
  state.host = "node7";
  state.pid = 12;
  state.finished = 4;
  state.seq = 5;
  state.doing = "barrier #0";
  state.seconds = 1.5;
  state.id = {1, 5, 0};
  state.members = {1, 3};
  Writer out;
  encode(out, state);
  Reader in(out.bytes());
  const WorkerState back = decode_worker_state(in);
  EXPECT_EQ(back.members, state.members);
  EXPECT_EQ(hang_report({{back}}, 4, 9).substr(0, 40), "  worker 0: its node does not answer\n  w");
  EXPECT_NE(hang_report({{back}}, 4, 9)
                .find("worker 3 (node7 pid 12): waits in barrier #0 of command 5 since 1.5 s for worker 1; 4 of 9"),
            std::string::npos)
      << hang_report({{back}}, 4, 9);
}

TEST(WorkerState, names_have_no_control_characters) {
  WorkerState state;
  state.worker = 0;
  state.kind = WorkerState::Kind::kComputes;
  state.host = "h";
  state.seq = 1;
  state.doing = "f\x1b[2J";
  const std::string text = hang_report({{state}}, 1, 1);
  EXPECT_NE(text.find(R"(computes f\x1b[2J in command 1)"), std::string::npos) << text;
}

}  // namespace
