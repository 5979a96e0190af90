// Recorded programs, on every kind of session.
#include "tutti/program.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;
using namespace std::chrono_literals;

std::atomic<int64_t> alive{0};  // of all workers of the process
struct Tracked {
  Tracked() { ++alive; }
  ~Tracked() { --alive; }
};

/// What this worker has kept: the one given, if there is one.
Function& stashed(const Function& given) {
  thread_local Function kept;
  if (given) kept = given;
  return kept;
}

const bool registered = [] {
  register_global_func("program.add", [](int64_t a, int64_t b) { return a + b; });
  register_global_func("program.id", [] { return worker::id(); });
  register_global_func("program.less", [](int64_t a, int64_t b) { return a < b; });
  register_global_func("program.count", [](const Tensor& counter) { return ++counter.values<int64_t>()[0]; });
  register_global_func("program.zero", [] { return Tensor::full<int64_t>({1}, 0); });
  register_global_func("program.sum", [](const Tensor& t) {
    int64_t sum = 0;
    for (const int64_t v : t.values<int64_t>()) sum += v;
    return sum;
  });
  register_global_func("program.fill", [](const Tensor& t, int64_t x) {
    for (int64_t& v : t.values<int64_t>()) v = x;
  });
  register_global_func("program.throw_at", [](const Tensor& counter, int64_t when, int64_t who) {
    if (++counter.values<int64_t>()[0] == when && (who < 0 || who == worker::id())) throw std::runtime_error("told to");
    return 1;
  });
  register_global_func("program.sleep", [](int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
  register_global_func("program.first", [](const List& list) { return list.at(0); });
  register_global_func("program.apply", [](const Function& function) { return function(List{function, 1}); });
  register_global_func("program.stash", [](const Function& function) { stashed(function); });
  register_global_func("program.call_stashed", [] { return stashed({})(List{1}); });
  register_global_func("program.tracked", [] { return std::make_shared<Tracked>(); });
  register_global_func("program.alive", [] { return alive.load(); });
  register_global_func("program.memory", [] {
    int64_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return resident * 4096;
  });
  register_global_func("program.throw_on", [](int64_t mask) {
    if (mask >> worker::id() & 1) throw std::runtime_error("told to");
  });
  register_global_func("program.allreduce", [](int64_t x) {
    const Tensor t = Tensor::full<int64_t>({1}, x + worker::id());
    worker::world().allreduce(t, t);
    return t.item<int64_t>();
  });
  return true;
}();

int64_t get(const DRef& ref, int worker = 0) { return ref.debug_get_from_remote(worker).as<int64_t>(); }
Tensor ints(std::initializer_list<int64_t> values) { return Tensor::from<int64_t>(values); }

TEST(Program, replays_what_was_recorded) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add"), id = s.get_global_func("program.id");
  auto recording = s.record();
  const DRef x = recording.slot("x");
  const DRef y = add(add(x, 1), id());
  recording.returns(y);
  const Program program = recording.finish();
  EXPECT_EQ(program.size(), 3U);
  EXPECT_EQ(program.slots(), std::vector<std::string>{"x"});
  EXPECT_NE(program.name().find("program_test.cpp:"), std::string::npos) << program.name();
  EXPECT_TRUE(y.debug_get_from_remote(0).is_none());  // it has not run
  const DRef first = program(10), second = program(20);
  for (int w = 0; w < workers(); ++w) {
    EXPECT_EQ(get(first, w), 11 + w);
    EXPECT_EQ(get(second, w), 21 + w);
    EXPECT_EQ(get(y, w), 21 + w);  // the last replay's
  }
  s.sync_all();
}

TEST(Program, slots_take_what_a_call_takes) {
  Session s = make_session();
  const auto first = s.get_global_func("program.first"), sum = s.get_global_func("program.sum"),
             echo = s.get_global_func("tutti.echo"), add = s.get_global_func("program.add");
  auto recording = s.record("slots");
  const DRef text = recording.slot(), number = recording.slot(), array = recording.slot();
  const DRef a = echo(text), b = first(List{number, 1}), c = sum(array), d = sum(ints({1, 2, 3}));
  const Program program = recording.finish();
  EXPECT_EQ(program.name(), "slots");
  const DRef seven = add(3, 4);
  program("hello", seven, ints({4, 5}));
  EXPECT_EQ(a.debug_get_from_remote(workers() - 1), Value("hello"));
  EXPECT_EQ(get(b, workers() - 1), 7);
  EXPECT_EQ(get(c), 9);
  EXPECT_EQ(get(d), 6);
  program(1.5, 8, s.broadcast(ints({6, 7})));
  EXPECT_EQ(a.debug_get_from_remote(0), Value(1.5));
  EXPECT_EQ(get(b), 8);
  EXPECT_EQ(get(c), 13);
  const auto wrong = message_of<UsageError>([&] { program(1); });
  EXPECT_NE(wrong.find("program slots: expected 3 values (1, 2, 3), got 1"), std::string::npos) << wrong;
  const auto large = message_of<UsageError>([&] { program(1, 2, Tensor::empty({100000})); });
  EXPECT_NE(large.find("program slots: argument 3: "), std::string::npos) << large;
  EXPECT_THROW(program.repeat(-1, {1, 2, 3}), UsageError);
  EXPECT_THROW(Program()(), UsageError);
  s.sync_all();
}

TEST(Program, a_constant_is_the_same_in_each_replay) {
  Session s = make_session();
  const auto count = s.get_global_func("program.count");
  auto recording = s.record();
  const DRef result = count(ints({40}));
  const Program program = recording.finish();
  program.repeat(3);
  EXPECT_EQ(get(result), 41);
}

TEST(Program, collectives_and_repetitions) {
  Session s = make_session();
  const auto fill = s.get_global_func("program.fill"), sum = s.get_global_func("program.sum");
  const DRef t = s.broadcast(ints({1, 1, 1, 1})), small = s.broadcast(ints({2}));
  auto recording = s.record();
  s.allreduce(t, t);
  const DRef total = sum(t);
  s.barrier();
  s.allreduce(small, small, "max");
  const Program program = recording.finish();
  EXPECT_EQ(get(program.repeat(5)), 5);
  int64_t expected = 4;
  for (int i = 0; i < 5; ++i) expected *= workers();
  EXPECT_EQ(get(total, workers() - 1), expected);
  EXPECT_EQ(get(program.repeat(0)), 0);
  EXPECT_EQ(get(total), expected);
  s.sync_all();
}

TEST(Program, ends_when_all_workers_say_so) {
  Session s = make_session();
  const auto count = s.get_global_func("program.count"), zero = s.get_global_func("program.zero"),
             less = s.get_global_func("program.less"), id = s.get_global_func("program.id"),
             add = s.get_global_func("program.add");
  const DRef counter = zero(), after = zero();
  auto recording = s.record();
  // worker w is ready in iteration w + 3, and stays so
  recording.stop_when(less(add(id(), 2), count(counter)));
  count(after);
  const Program program = recording.finish();
  EXPECT_EQ(get(program.repeat(1000)), workers() + 2);
  for (int w = 0; w < workers(); ++w) {
    EXPECT_EQ(counter.debug_get_from_remote(w).as<Tensor>().item<int64_t>(), workers() + 2);
    EXPECT_EQ(after.debug_get_from_remote(w).as<Tensor>().item<int64_t>(), workers() + 1);  // the replay ends at once
  }
  EXPECT_EQ(get(program.repeat(1000)), 1);
  auto other = s.record();
  other.stop_when(add(1, 2));
  const Program wrong = other.finish();
  wrong.repeat(3);
  const auto message = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(message.find("stop_when: argument 1: expected bool"), std::string::npos) << message;
}

TEST(Program, carries_values_from_one_iteration_to_the_next) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add");
  auto recording = s.record("fibonacci");
  const DRef a = recording.slot("a"), b = recording.slot("b");
  const DRef next = add(a, b);
  recording.assign(a, b);
  recording.assign(b, next);
  EXPECT_THROW(recording.assign(next, b), UsageError);
  recording.returns(a);
  recording.returns(next);
  const Program program = recording.finish();
  program.repeat(50, {0, 1});
  EXPECT_EQ(get(a), 12586269025);
  EXPECT_EQ(program(3, 4).debug_get_from_remote(workers() - 1), Value(List{4, 7}));
}

TEST(Program, values_are_carried_all_at_once) {
  Session s = make_session();
  auto recording = s.record();
  const DRef a = recording.slot("a"), b = recording.slot("b");
  recording.assign(a, b);
  recording.assign(b, a);
  const auto twice = message_of<UsageError>([&] { recording.slot("a"); });
  EXPECT_NE(twice.find("has a slot 'a' already"), std::string::npos) << twice;
  const Program swap = recording.finish();
  swap.repeat(3, {1, 2});
  EXPECT_EQ(get(a), 2);
  EXPECT_EQ(get(b), 1);
}

TEST(Program, a_slot_may_be_made_after_steps) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add"), echo = s.get_global_func("tutti.echo");
  auto recording = s.record();
  add(add(1, 2), add(3, 4));
  add(5, 6);
  const DRef x = recording.slot("x"), y = echo(x);
  const Program program = recording.finish();
  program(7);
  EXPECT_EQ(get(y), 7);
}

TEST(Program, a_replay_that_ends_early_leaves_nothing_else_in_results) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add"), less = s.get_global_func("program.less"),
             echo = s.get_global_func("tutti.echo");
  auto recording = s.record();
  const DRef x = recording.slot("x");
  recording.stop_when(less(add(x, 0), 10));
  const DRef y = echo(add(x, 1)), z = echo("z");
  recording.assign(x, add(x, -1));
  recording.returns(y);
  const Program program = recording.finish();
  EXPECT_EQ(get(program(20)), 21);
  EXPECT_TRUE(program(5).debug_get_from_remote(0).is_none());
  EXPECT_EQ(z.debug_get_from_remote(0), Value("z"));
  EXPECT_EQ(get(program.repeat(100, {15})), 7);  // 15, 14, ..., 10, and 9, where it ends
  EXPECT_EQ(get(y, workers() - 1), 11);
  EXPECT_EQ(z.debug_get_from_remote(0), Value("z"));
}

TEST(Program, what_nobody_has_a_handle_to_is_not_kept_between_replays) {
  Session s = make_session();
  const auto tracked = s.get_global_func("program.tracked"), alive_now = s.get_global_func("program.alive"),
             echo = s.get_global_func("tutti.echo");
  const int64_t here = kind() == "thread" ? workers() : 1;  // in worker 0's process
  const auto make = [&] {
    auto recording = s.record();
    tracked();
    const DRef first = tracked(), second = echo(first), other = tracked();  // their handles go with this function
    recording.returns(echo(second));
    return recording.finish();
  };
  {
    const Program program = make();
    for (int i = 0; i < 3; ++i) {
      const DRef result = program();
      s.sync_all();
      EXPECT_EQ(get(alive_now()), here);  // the result
    }
  }
  s.sync_all();
  s.sync_all();
  EXPECT_EQ(get(alive_now()), 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
constexpr bool kIsSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kIsSanitized = false;
#endif

TEST(Program, needs_no_more_memory_after_many_replays) {
  Session s = make_session();
  const auto memory = s.get_global_func("program.memory"), add = s.get_global_func("program.add"),
             zero = s.get_global_func("program.zero"), echo = s.get_global_func("tutti.echo");
  auto first = s.record();
  add(1, 2);
  const Program inner = first.finish();
  auto recording = s.record();
  const DRef x = recording.slot(), kept = echo(List{zero(), x});
  inner.repeat(10);
  recording.returns(kept);
  const Program program = recording.finish();
  const auto some = [&](int replays) {
    for (int i = 0; i < replays; ++i) program(i);
    program.repeat(100 * replays, {1});
    s.sync_all();
  };
  const int few = kIsSanitized ? 50 : 2000;
  some(few);
  const int64_t before = get(memory());
  some(2 * few);
  if (!kIsSanitized) {  // a sanitizer keeps what is freed
    EXPECT_LT(get(memory()) - before, 4 << 20);
  }
}

TEST(Program, a_function_that_outlives_it_is_refused) {
  Session s = make_session();
  const auto stash = s.get_global_func("program.stash"), call_stashed = s.get_global_func("program.call_stashed"),
             add = s.get_global_func("program.add");
  {
    auto recording = s.record("gone");
    add(1, 2);
    const Program program = recording.finish();
    stash(program);
    EXPECT_EQ(get(call_stashed()), 1);
  }
  std::vector<DRef> functions;  // one is in the register that held it
  for (int i = 0; i < 4; ++i) functions.push_back(s.get_global_func("program.add"));
  const DRef mine = add(3, 4), yours = add(5, 6);
  s.sync_all();
  call_stashed();
  const auto message = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(message.find("program gone is not there any more"), std::string::npos) << message;
  EXPECT_EQ(get(mine), 7);
  EXPECT_EQ(get(yours), 11);
}

TEST(Program, programs_are_steps_of_programs) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add"), count = s.get_global_func("program.count"),
             zero = s.get_global_func("program.zero");
  const DRef counter = zero();
  Program outer;
  DRef result;
  {
    auto recording = s.record("inner");
    const DRef x = recording.slot("x");
    count(counter);
    recording.returns(add(x, 100));
    const Program inner = recording.finish();
    auto second = s.record("outer");
    const DRef y = second.slot("y");
    result = add(inner(y), inner(1));
    inner.repeat(3, {0});
    outer = second.finish();
  }  // the outer one keeps what it needs
  outer.repeat(4, {5});
  for (int w = 0; w < workers(); ++w) {
    EXPECT_EQ(get(result, w), 206);
    EXPECT_EQ(counter.debug_get_from_remote(w).as<Tensor>().item<int64_t>(), 4 * 5);
  }
}

TEST(Program, arrays_of_the_controller_are_read_by_each_replay) {
  Session s = make_session();
  const auto sum = s.get_global_func("program.sum");
  const DRef remote = s.empty({2}, kInt64);
  const Tensor in = ints({1, 2}), out = ints({0, 0}), part = Tensor::full<int64_t>({workers(), 1}, 1),
               large = Tensor::full<int64_t>({100000}, 1);
  auto recording = s.record();
  s.copy_to_worker_0(in, remote);
  s.copy_from_worker_0(out, remote);
  const DRef new_one = s.copy_to_worker_0(in), everywhere = s.broadcast(in), mine = s.scatter(part), all = s.broadcast(large);
  const DRef total = sum(everywhere), of_large = sum(all), of_part = sum(mine);
  const Program program = recording.finish();
  for (int64_t i = 1; i < 4; ++i) {
    in.values<int64_t>()[0] = 10 * i;
    for (int64_t& v : part.values<int64_t>()) v = i++, --i;
    large.values<int64_t>()[99999] = i;
    program();
    s.sync_all();
    EXPECT_EQ(out.values<int64_t>()[0], 10 * i);
    EXPECT_EQ(new_one.debug_get_from_remote(0).as<Tensor>().values<int64_t>()[0], 10 * i);
    EXPECT_EQ(get(total, workers() - 1), 10 * i + 2);
    EXPECT_EQ(get(of_large, workers() - 1), 99999 + i);
    EXPECT_EQ(get(of_part, workers() - 1), i);
  }
}

TEST(Program, copies_of_a_program_that_failed_work_again) {
  Session s = make_session_of_several();
  const auto throw_on = s.get_global_func("program.throw_on"), echo = s.get_global_func("tutti.echo");
  const DRef everywhere = s.broadcast(ints({0, 0}));
  const Tensor host = ints({1, 2});
  auto recording = s.record();
  const DRef mask = recording.slot();
  throw_on(mask);
  s.copy_to_worker_0(host, everywhere);
  const DRef seen = echo(everywhere);
  s.copy_from_worker_0(host, everywhere);
  const Program program = recording.finish();
  for (const int64_t who : {1, 2, 3}) {
    program(who);
    EXPECT_THROW(s.sync_all(), RemoteError);
    program(0);
    s.sync_all();
    host.values<int64_t>()[0] += 10;
    program(0);
    s.sync_all();
    EXPECT_EQ(seen.debug_get_from_remote(0).as<Tensor>().values<int64_t>()[0], 10 * who + 1);
  }
}

TEST(Program, registers_are_used_again) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add");
  auto recording = s.record();
  const int64_t first = add(1, 2).reg_id();  // dropped at once
  for (int i = 0; i < 100; ++i) EXPECT_EQ(add(i, i).reg_id(), first);
  const DRef kept = add(3, 4);
  const int64_t reg = kept.reg_id();
  const DRef slot = recording.slot();
  { const DRef of_slot = slot; }
  const Program program = recording.finish();
  for (int i = 0; i < 10; ++i) {
    program(i);
    EXPECT_EQ(get(kept), 7);
  }
  const DRef other = add(5, 6);
  EXPECT_NE(other.reg_id(), first);
  EXPECT_NE(other.reg_id(), reg);
}

TEST(Program, handles_and_programs_live_on_without_each_other) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add");
  DRef left;
  Program program;
  {
    const DRef five = add(2, 3);
    auto recording = s.record();
    left = add(five, 1);
    program = recording.finish();
  }
  for (int i = 0; i < 50; ++i) add(i, i);  // others' registers come and go
  program();
  EXPECT_EQ(get(left), 6);
  program = {};
  for (int i = 0; i < 50; ++i) add(i, i);
  EXPECT_EQ(get(left), 6);
}

TEST(Program, what_waits_or_changes_the_session_is_refused) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add");
  const DRef three = add(1, 2);
  s.sync_all();
  auto recording = s.record();
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { s.sync_all(); }, [&] { s.sync_worker_0(); }, [&] { three.debug_get_from_remote(0); },
           [&] { three.debug_copy_from(0, 1); }, [&] { s.init_ccl("mpi"); }, [&] { s.shutdown(); }, [&] { s.record(); },
           [&] { s.import_python_module("os"); }}) {
    const auto message = message_of<UsageError>(call);
    EXPECT_NE(message.find("can't be recorded"), std::string::npos) << message;
    EXPECT_NE(message.find("program_test.cpp:"), std::string::npos) << message;
  }
  add(three, 1);
  const Program program = recording.finish();
  EXPECT_EQ(program.size(), 1U);
  EXPECT_THROW(recording.slot(), UsageError);
  EXPECT_THROW(recording.finish(), UsageError);
  program();
  s.sync_all();
}

TEST(Program, a_recording_that_is_not_finished_leaves_nothing) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add"), count = s.get_global_func("program.count"),
             zero = s.get_global_func("program.zero");
  const DRef counter = zero();
  DRef inside;
  s.sync_all();
  const uint64_t issued = s.progress().issued;
  try {
    auto recording = s.record();
    inside = count(counter);
    EXPECT_EQ(s.progress().issued, issued);
    throw std::runtime_error("of the body");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(get(add(1, 2)), 3);
  EXPECT_TRUE(inside.debug_get_from_remote(0).is_none());
  EXPECT_EQ(counter.debug_get_from_remote(0).as<Tensor>().item<int64_t>(), 0);
  s.record().finish()();  // without a step
  s.sync_all();
}

TEST(Program, errors_name_the_step_and_the_iteration) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add"), zero = s.get_global_func("program.zero"),
             throw_at = s.get_global_func("program.throw_at");
  const DRef counter = zero();
  auto recording = s.record("faulty");
  const DRef before = add(1, 2);
  const DRef after = throw_at(counter, 3, workers() - 1);
  const Program program = recording.finish();
  program.repeat(10);
  try {
    s.sync_all();
    FAIL() << "no error";
  } catch (const RemoteError& error) {
    ASSERT_EQ(error.failures().size(), 1U);
    const WorkerFailure& failure = error.failures()[0];
    EXPECT_EQ(failure.worker, workers() - 1);
    EXPECT_EQ(failure.function, "program.throw_at");
    EXPECT_NE(failure.message.find("step 2 of program faulty (recorded at"), std::string::npos) << failure.message;
    EXPECT_NE(failure.message.find("), iteration 3 of 10: told to"), std::string::npos) << failure.message;
    EXPECT_NE(failure.kind.find("runtime_error"), std::string::npos) << failure.kind;
  }
  EXPECT_THROW(before.debug_get_from_remote(workers() - 1), RemoteError);  // the next iteration's was skipped
  EXPECT_THROW(after.debug_get_from_remote(workers() - 1), RemoteError);
  if (workers() > 1) {
    EXPECT_EQ(get(before), 3);
  }
  EXPECT_EQ(get(program.repeat(10)), 10);  // the session goes on
  EXPECT_EQ(get(after, workers() - 1), 1);
  s.sync_all();
}

TEST(Program, in_the_last_iteration_what_came_before_an_error_is_there) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add"), zero = s.get_global_func("program.zero"),
             throw_at = s.get_global_func("program.throw_at");
  const DRef counter = zero();
  auto recording = s.record();
  const DRef before = add(1, 2);
  const DRef after = throw_at(counter, 2, -1);
  const Program program = recording.finish();
  program.repeat(2);
  EXPECT_THROW(s.sync_all(), RemoteError);
  EXPECT_EQ(get(before), 3);
  EXPECT_THROW(after.debug_get_from_remote(0), RemoteError);
}

TEST(Program, a_member_that_throws_ends_the_collectives_of_all) {
  Session s = make_session_of_several();
  const int n = s.num_workers();
  const auto zero = s.get_global_func("program.zero"), throw_at = s.get_global_func("program.throw_at");
  const DRef counter = zero(), t = s.broadcast(ints({1}));
  auto recording = s.record();
  throw_at(counter, 5, 1);
  s.allreduce(t, t);
  const Program program = recording.finish();
  program.repeat(100);
  const auto message = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(message.find("iteration 5 of 100: told to"), std::string::npos) << message;
  for (int w = 0; w < n; ++w) EXPECT_THROW(t.debug_get_from_remote(w), RemoteError);
  s.broadcast(ints({1}), t);
  program.repeat(3);
  s.sync_all();
  EXPECT_EQ(t.debug_get_from_remote(0).as<Tensor>().item<int64_t>(), int64_t{n} * n * n);
}

TEST(Program, a_failed_program_inside_of_another_names_both) {
  Session s = make_session();
  const auto zero = s.get_global_func("program.zero"), throw_at = s.get_global_func("program.throw_at"),
             add = s.get_global_func("program.add");
  const DRef counter = zero();
  auto recording = s.record("inner");
  const DRef first = add(1, 1);
  const DRef second = throw_at(counter, 4, 0);
  const DRef third = add(1, 2);
  const Program inner = recording.finish();
  auto other = s.record("outer");
  inner.repeat(2);
  const DRef last = add(1, 3);
  const Program outer = other.finish();
  outer.repeat(2);
  const auto message = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(message.find("step 1 of program outer"), std::string::npos) << message;
  EXPECT_NE(message.find("iteration 2 of 2: step 2 of program inner"), std::string::npos) << message;
  EXPECT_EQ(get(first), 2);
  for (const DRef* lost : {&second, &third, &last}) EXPECT_THROW(lost->debug_get_from_remote(0), RemoteError);
}

TEST(Program, a_skipped_replay_loses_its_results) {
  Session s = make_session();
  const auto zero = s.get_global_func("program.zero"), throw_at = s.get_global_func("program.throw_at"),
             add = s.get_global_func("program.add");
  const DRef counter = zero(), t = s.broadcast(ints({1}));
  auto recording = s.record();
  const DRef x = recording.slot(), y = add(x, 1);
  s.allreduce(t, t);
  recording.returns(y);
  const Program program = recording.finish();
  program(1);
  s.sync_all();
  throw_at(counter, 1, -1);
  const DRef returned = program(2);
  EXPECT_THROW(s.sync_all(), RemoteError);
  for (const DRef* lost : {&y, &t, &returned}) EXPECT_THROW(lost->debug_get_from_remote(0), RemoteError);
  const DRef again = program(throw_at(counter, 1, -1));  // no slot of it is lost
  EXPECT_THROW(s.sync_all(), RemoteError);               // but t is
  s.broadcast(ints({1}), t);
  EXPECT_EQ(get(program(3)), 4);
  s.sync_all();
}

TEST(Program, a_report_says_where_a_worker_is) {
  Session s = make_session();
  const auto add = s.get_global_func("program.add"), sleep = s.get_global_func("program.sleep");
  s.sync_all();
  auto recording = s.record("slow");
  add(1, 2);
  sleep(1000);
  const Program program = recording.finish();
  program.repeat(2);
  std::string message;
  for (int i = 0; i < 20 && message.find("in step") == std::string::npos; ++i)  // the machine may be busy
    message = message_of<TimeoutError>([&] { s.sync_all(100ms); });
  EXPECT_NE(message.find("computes program.sleep in step 2 of program slow, iteration 1 in command"), std::string::npos)
      << message;
  s.sync_all();
  sleep(500);
  const auto outside = message_of<TimeoutError>([&] { s.sync_all(100ms); });
  EXPECT_EQ(outside.find("in step"), std::string::npos) << outside;
  s.sync_all();
}

TEST(Program, a_report_says_where_a_worker_is_after_many_collectives) {
  Session s = make_session();
  const auto allreduce = s.get_global_func("program.allreduce"), sleep = s.get_global_func("program.sleep");
  auto first = s.record("many");
  allreduce(1);
  const Program many = first.finish();
  auto recording = s.record("slow");
  many.repeat(3000);  // more than a flight recorder holds
  sleep(1500);
  const Program program = recording.finish();
  program();
  std::string report;
  for (int i = 0; i < 600 && report.find("computes program.sleep in step 2 of program slow, iteration 1") == std::string::npos;
       ++i)
    report = message_of<TimeoutError>([&] { s.sync_all(100ms); });
  EXPECT_NE(report.find("computes program.sleep in step 2 of program slow, iteration 1"), std::string::npos) << report;
  s.sync_all();
}

TEST(Program, a_function_may_replay_it_but_not_inside_of_itself) {
  Session s = make_session();
  const auto apply = s.get_global_func("program.apply"), add = s.get_global_func("program.add");
  auto recording = s.record("itself");
  apply(recording.slot("what"));
  const Program program = recording.finish();
  program(program);
  const auto message = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_NE(message.find("program itself can't replay itself"), std::string::npos) << message;
  auto other = s.record();
  other.slot();
  const DRef three = add(1, 2);
  EXPECT_EQ(get(apply(other.finish())), 1);
  EXPECT_EQ(get(three), 3);
}

}  // namespace
