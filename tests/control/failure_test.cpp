// The failure protocol of docs/design.md on every kind of session: skip until acknowledged, poison, fold, go on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <set>
#include <thread>

#include "support/failures.h"
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

enum class Point { kBefore, kBetween, kAfter };

std::atomic<bool> worker_0_may_go_on{true};  // worker 0 lives in the controller's process

constexpr int kThrownAt = __LINE__ + 4;
const bool registered = [] {
  register_global_func("fail.on", [](const Shape& workers, const std::string& text) {
    for (int64_t w : workers)
      if (w == worker::id()) throw std::runtime_error(text);
    return worker::id();
  });
  register_global_func("fail.break_pipe", [] {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    close(ends[0]);
    if (write(ends[1], "x", 1) != -1 || errno != EPIPE) throw std::runtime_error("expected EPIPE");
    close(ends[1]);
    const int ended = std::system("kill -s PIPE $$");  // NOLINT: by a shell
    return WIFSIGNALED(ended) ? WTERMSIG(ended) : -1;
  });
  register_global_func("fail.int_on", [](int on) {
    if (on == worker::id()) throw 42;  // NOLINT: not a std::exception, on purpose
  });
  register_global_func("fail.without_words", [] {
    struct Silent : std::exception {
      const char* what() const noexcept override { return nullptr; }
    };
    throw Silent();
  });
  register_global_func("fail.two_args", [](int64_t a, const std::string& b) { return std::to_string(a) + b; });
  register_global_func("fail.on_a_device", [] {
    static float memory[4];
    return Tensor::wrap(memory, {4}, kFloat32, {}, {}, {8, 0});  // Metal's
  });
  register_global_func("fail.lose_on", [](int64_t on, int64_t n) {
    if (on < 0 || on == worker::id()) throw std::runtime_error("no tensor");
    return Tensor::full<float>({n}, 1);
  });
  register_global_func("fail.in_list", [](const Tensor& t) { return List{1, List{t}}; });
  register_global_func("fail.type_of_consequence", [] {
    Tensor t = Tensor::full<float>({2}, 1);
    if (worker::id() == 0) throw std::runtime_error("worker 0 does not join");
    try {
      worker::world().allreduce(t, t);
    } catch (const RemoteError&) {
      return std::string("RemoteError");
    }
    return std::string("none");
  });
  register_global_func("fail.hold_worker_0", [] {
    while (worker::id() == 0 && !worker_0_may_go_on) std::this_thread::yield();
  });
  register_global_func("fail.echo", [](const Value& v) { return v; });
  // two allreduces; the given workers throw before, between or after them
  register_global_func("fail.collectives", [](const Shape& workers, int point, const Tensor& a, const Tensor& b) {
    auto maybe_throw = [&](Point here) {
      for (int64_t w : workers)
        if (w == worker::id() && static_cast<Point>(point) == here) throw std::logic_error("thrown in fail.collectives");
    };
    Tensor one = Tensor::full<float>({4}, 1), id = Tensor::full<float>({4}, static_cast<float>(worker::id()));
    maybe_throw(Point::kBefore);
    worker::world().allreduce(one, a);
    maybe_throw(Point::kBetween);
    worker::world().allreduce(id, b, ReduceOp::kMax);
    maybe_throw(Point::kAfter);
  });
  return true;
}();

Shape all_workers() {
  Shape ids;
  for (int w = 0; w < workers(); ++w) ids.push_back(w);
  return ids;
}

std::vector<Shape> throwing_sets() {
  std::vector<Shape> sets = {{0}, {workers() - 1}, all_workers()};
  if (workers() > 2) sets.push_back({0, workers() - 1});
  return sets;
}

TEST(Failure, a_throwing_function_is_told_with_everything) {
  for (const Shape& who : throwing_sets()) {
    Session s = make_session();
    auto f = s.get_global_func("fail.on");
    f(who, "boom");  // the next line is named in the error
    const int line = __LINE__ - 1;
    const RemoteError error = error_of_sync_all(s);
    const std::set<int> expected(who.begin(), who.end());
    EXPECT_EQ(error.workers(), std::vector<int>(expected.begin(), expected.end()));
    const std::string text = error.what();
    EXPECT_NE(text.find("boom"), std::string::npos) << text;
    EXPECT_NE(text.find("fail.on"), std::string::npos) << text;
    EXPECT_NE(text.find("std::runtime_error"), std::string::npos) << text;
    EXPECT_NE(text.find("remote traceback:\n"), std::string::npos) << text;
    EXPECT_NE(text.find("failure_test.cpp:" + std::to_string(kThrownAt)), std::string::npos) << text;  // where it was thrown
    EXPECT_NE(text.find("failure_test.cpp:" + std::to_string(line)), std::string::npos) << text;
    if (who.size() > 1 && who == all_workers()) {
      EXPECT_NE(text.find("workers 0-"), std::string::npos) << text;
    }
    s.sync_all();  // an error is raised once
    expect_usable(s);
  }
}

TEST(Failure, a_long_message_is_raised_whole_and_its_ends_are_remembered) {
  Session s = make_session();
  const std::string message = "begin " + std::string(1 << 20, 'x') + " end";
  DRef lost = s.get_global_func("fail.on")(Shape{workers() - 1}, message);
  EXPECT_NE(std::string(error_of_sync_all(s).what()).find(message), std::string::npos);
  const std::string again = message_of<RemoteError>([&] { lost.debug_get_from_remote(workers() - 1); });
  EXPECT_LT(again.size(), size_t{64} << 10);
  for (const char* part : {"begin x", "x end", "bytes are left out"}) EXPECT_NE(again.find(part), std::string::npos) << part;
}

TEST(Failure, a_large_copy_to_a_failed_worker_is_skipped_and_the_next_one_is_made) {
  Session s = make_session();
  const int last = workers() - 1;
  const Tensor sent = Tensor::full<int32_t>({1 << 20}, 7);
  DRef there = s.empty(sent.shape(), kInt32);
  s.sync_all();
  s.get_global_func("fail.on")(Shape{last}, "told to");
  EXPECT_THROW(there.debug_copy_from(last, sent), RemoteError);
  there.debug_copy_from(last, sent);
  EXPECT_EQ(there.debug_get_from_remote(last), Value(sent));
  s.sync_all();
}

TEST(Failure, commands_after_it_are_skipped_and_their_results_poisoned) {
  Session s = make_session();
  const int last = workers() - 1;
  auto f = s.get_global_func("fail.on"), echo = s.get_global_func("fail.echo");
  DRef kept = echo(7), lost = f(Shape{last}, "first"), skipped = echo(8);
  f(Shape{last}, "second, never runs");
  const std::string text = error_of_sync_all(s).what();
  EXPECT_EQ(text.find("second"), std::string::npos) << text;
  EXPECT_EQ(kept.debug_get_from_remote(last), Value(7));
  // reading what it poisoned raises it again
  EXPECT_NE(message_of<RemoteError>([&] { lost.debug_get_from_remote(last); }).find("first"), std::string::npos);
  EXPECT_NE(message_of<RemoteError>([&] { skipped.debug_get_from_remote(last); }).find("first"), std::string::npos);
  if (last > 0) {
    EXPECT_EQ(skipped.debug_get_from_remote(0), Value(8));
  }
  // a poisoned register as an argument is a new failure
  DRef next = echo(skipped);
  const RemoteError error = error_of_sync_all(s);
  EXPECT_EQ(error.workers(), std::vector{last});
  EXPECT_NE(std::string(error.what()).find("argument 1 was lost"), std::string::npos) << error.what();
  // overwritten, it is fine
  skipped.debug_copy_from(last, 9);
  EXPECT_EQ(echo(skipped).debug_get_from_remote(last), Value(9));
  expect_usable(s);
}

TEST(Failure, throwing_before_between_and_after_collectives) {
  for (const Shape& who : throwing_sets())
    for (Point point : {Point::kBefore, Point::kBetween, Point::kAfter}) {
      Session s = make_session();
      DRef a = s.empty({4}, kFloat32), b = s.empty({4}, kFloat32);
      auto f = s.get_global_func("fail.collectives");
      f(who, static_cast<int>(point), a, b);
      const RemoteError error = error_of_sync_all(s);
      for (const WorkerFailure& failure : error.failures()) {
        EXPECT_NE(std::find(who.begin(), who.end(), failure.worker), who.end()) << error.what();
        EXPECT_EQ(failure.message, "thrown in fail.collectives");
      }
      EXPECT_EQ(error.failures().size(), std::set<int64_t>(who.begin(), who.end()).size()) << error.what();
      s.sync_all();
      expect_usable(s);
      s.broadcast(Tensor::full<float>({4}, 5), a);  // the same registers, overwritten by collectives
      s.broadcast(Tensor::full<float>({4}, 5), b);
      f(Shape{}, 0, a, b);
      EXPECT_EQ(to_vector(a.debug_get_from_remote(0)), std::vector<float>(4, static_cast<float>(workers())));
    }
}

TEST(Failure, a_collective_that_a_member_skips_fails_on_all_and_poisons_dst_and_its_views) {
  if (workers() < 2) return;  // nobody else to skip it
  Session s = make_session();
  auto f = s.get_global_func("fail.on"), echo = s.get_global_func("fail.echo");
  DRef src = s.empty({4}, kFloat32), dst = s.empty({4}, kFloat32), view = echo(dst);
  s.sync_all();
  f(Shape{1}, "the origin");
  s.allreduce(src, dst, "sum", false);
  const RemoteError error = error_of_sync_all(s);
  EXPECT_EQ(error.workers(), std::vector{1}) << error.what();
  for (int w = 0; w < workers(); ++w) {
    EXPECT_NE(message_of<RemoteError>([&] { view.debug_get_from_remote(w); }).find("the origin"), std::string::npos) << w;
  }
  s.broadcast(Tensor::full<float>({4}, 3), dst);
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(to_vector(view.debug_get_from_remote(w)), std::vector<float>(4, 3));
  expect_usable(s);
}

TEST(Failure, sync_of_a_victim_raises_the_origin) {
  if (workers() < 2) return;  // the victim is another worker
  Session s = make_session();
  DRef a = s.empty({4}, kFloat32), b = s.empty({4}, kFloat32);
  s.get_global_func("fail.collectives")(Shape{workers() - 1}, static_cast<int>(Point::kBetween), a, b);
  const std::string text = message_of<RemoteError>([&] { s.sync_worker(0); });
  EXPECT_NE(text.find("thrown in fail.collectives"), std::string::npos) << text;
  EXPECT_NE(text.find("worker " + std::to_string(workers() - 1)), std::string::npos) << text;
  s.sync_all();
  expect_usable(s);
}

TEST(Failure, unknown_functions_and_wrong_arguments) {
  Session s = make_session();
  s.get_global_func("fail.ecko");
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("fail.echo"), std::string::npos);  // a near name
  auto two = s.get_global_func("fail.two_args");
  two(1, 2);
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("fail.two_args: argument 2: expected str, got int 2"),
            std::string::npos);
  two(1);
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("expected 2 arguments, got 1"), std::string::npos);
  s.get_global_func("fail.int_on")(workers() - 1);
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("not a std::exception"), std::string::npos);
  s.get_global_func("fail.without_words")();
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("Silent: what() of the exception is null"), std::string::npos);
  s.call_packed(s.copy_to_worker_0(floats({1})));
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("expected a function"), std::string::npos);
  expect_usable(s);
}

/// Reading `ref` on any worker raises: nothing stale is seen.
void expect_lost(const DRef& ref, const char* what) {
  for (int w = 0; w < workers(); ++w) EXPECT_THROW(ref.debug_get_from_remote(w), RemoteError) << what << ", worker " << w;
}

TEST(Failure, a_collective_that_never_began_leaves_nothing_to_read) {
  const int n = workers();
  for (const char* name : {"allreduce", "allgather", "reduce_scatter", "all_to_all", "broadcast_from_worker0",
                           "scatter_from_worker0", "gather_to_worker0"}) {
    for (bool everywhere : {true, false}) {
      Session s = make_session();
      DRef lost = s.get_global_func("fail.lose_on")(everywhere ? -1 : n - 1, n);  // a tensor, or a failure
      EXPECT_THROW(s.sync_all(), RemoteError);
      DRef dst = s.broadcast(Tensor::full<float>({n}, 7), s.empty({n}, kFloat32), false);
      s.sync_all();
      const std::string op = name;
      if (op == "allreduce") s.allreduce(lost, dst, "sum", false);
      if (op == "allgather") s.allgather(lost, dst, false);
      if (op == "reduce_scatter") s.reduce_scatter(lost, dst, "sum", false);
      if (op == "all_to_all") s.all_to_all(lost, dst, false);
      if (op == "broadcast_from_worker0") s.broadcast_from_worker0(lost, dst, false);
      if (op == "scatter_from_worker0") s.scatter_from_worker0(lost, dst, false);
      if (op == "gather_to_worker0") s.gather_to_worker0(lost, dst, false);
      EXPECT_THROW(s.sync_all(), RemoteError) << name;
      expect_lost(dst, name);
      expect_usable(s);
    }
  }
}

TEST(Failure, copies_that_fail_or_are_skipped_leave_nothing_to_read) {
  Session s = make_session();
  DRef array = s.copy_to_worker_0(floats({1, 2, 3}));
  s.copy_to_worker_0(floats({1, 2}), array);  // another count: fails on worker 0
  EXPECT_THROW(s.sync_all(), RemoteError);
  EXPECT_THROW(array.debug_get_from_remote(0), RemoteError);
  s.copy_to_worker_0(floats({4, 5, 6}), array);  // overwritten: readable again
  EXPECT_EQ(to_vector(array.debug_get_from_remote(0)), (std::vector<float>{4, 5, 6}));

  DRef value = s.get_global_func("fail.echo")(1);
  s.get_global_func("fail.on")(Shape{workers() - 1}, "before the copy");
  EXPECT_NE(message_of<RemoteError>([&] { value.debug_copy_from(workers() - 1, 2); }).find("before the copy"), std::string::npos);
  EXPECT_THROW(value.debug_get_from_remote(workers() - 1), RemoteError);  // skipped: neither 1 nor 2
  value.debug_copy_from(workers() - 1, 3);
  EXPECT_EQ(value.debug_get_from_remote(workers() - 1), Value(3));
}

TEST(Failure, unreported_failures_are_raised_by_reading_and_setting) {
  Session s = make_session();
  const int last = workers() - 1;
  DRef fine = s.get_global_func("fail.echo")(1);
  s.get_global_func("fail.on")(Shape{last}, "first");
  EXPECT_NE(message_of<RemoteError>([&] { fine.debug_get_from_remote(last); }).find("first"), std::string::npos);
  EXPECT_EQ(fine.debug_get_from_remote(last), Value(1));
  s.get_global_func("fail.on")(Shape{last}, "second");
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_worker(last); }).find("second"), std::string::npos);
  expect_usable(s);
}

TEST(Failure, tensors_inside_lists_are_lost_and_copied_like_others) {
  Session s = make_session();
  DRef tensor = s.broadcast(floats({1, 2}));
  DRef pair = s.get_global_func("fail.in_list")(tensor);
  const Value before = pair.debug_get_from_remote(0);
  s.broadcast(floats({8, 9}), tensor);
  s.sync_all();
  EXPECT_EQ(to_vector(before.as<List>()[1].as<List>()[0]), (std::vector<float>{1, 2}));  // a copy, also inside the process
  s.get_global_func("fail.on")(Shape{0}, "lost");
  s.allreduce(tensor, tensor, "sum", false);
  EXPECT_THROW(s.sync_all(), RemoteError);
  expect_lost(pair, "list");
  s.get_global_func("fail.echo")(pair);
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("was lost"), std::string::npos);
  expect_usable(s);
}

TEST(Failure, a_collective_s_failure_is_a_remote_error_in_the_function) {
  if (workers() < 2) return;  // somebody else must fail
  Session s = make_session();
  DRef type = s.get_global_func("fail.type_of_consequence")();
  EXPECT_THROW(s.sync_all(), RemoteError);
  s.sync_all();
  EXPECT_EQ(type.debug_get_from_remote(workers() - 1), Value("RemoteError"));
}

TEST(Failure, values_that_can_t_be_copied_or_sent_are_refused_not_lost) {
  Session s = make_session();
  DRef on_device = s.get_global_func("fail.on_a_device")();
  for (int w = 0; w < workers(); ++w)
    EXPECT_THROW(on_device.debug_get_from_remote(w), UsageError) << w;  // no memory of that device here
  EXPECT_THROW(Tensor::wrap(&s, {1}, DType{dl::kFloat, 0, 1}), UsageError);
  expect_usable(s);
}

TEST(Failure, a_value_made_of_a_dref_keeps_its_register) {
  Session s = make_session();
  auto echo = s.get_global_func("fail.echo");
  List args;
  args.push_back(echo(42));  // the DRef dies here, the value lives
  for (int i = 0; i < 10; ++i) echo(i);
  EXPECT_EQ(s.call(echo, args).debug_get_from_remote(workers() - 1), Value(42));
}

TEST(Failure, time_outs_of_any_length) {
  Session s = make_session();
  s.sync_all(std::chrono::milliseconds::max());
  s.sync_all(std::chrono::milliseconds(0) + std::chrono::hours(1));
  DRef r = s.get_global_func("fail.echo")(1);
  EXPECT_EQ(r.debug_get_from_remote(0, std::chrono::milliseconds::max()), Value(1));
}

TEST(Failure, a_host_array_changed_before_its_copy_is_found_in_check_mode) {
  setenv("TUTTI_CHECK_HOST_ARRAYS", "1", 1);
  Session s = make_session();
  unsetenv("TUTTI_CHECK_HOST_ARRAYS");
  DRef remote = s.empty({3}, kFloat32);
  Tensor host = floats({1, 2, 3});
  s.copy_to_worker_0(host, remote);
  s.sync_all();
  worker_0_may_go_on = false;
  s.get_global_func("fail.hold_worker_0")();
  s.copy_to_worker_0(host, remote);
  host.values<float>()[1] = 7;
  worker_0_may_go_on = true;
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("host_array has changed"), std::string::npos);
  s.copy_to_worker_0(host, remote);
  EXPECT_EQ(remote.debug_get_from_remote(0), Value(host));
  expect_usable(s);
}

/// As when MPI writes to the connection of a rank that has died. What a worker starts dies of it as ever.
TEST(Failure, a_broken_pipe_kills_no_worker) {
  if (kind() != "mpi") return;  // signals of the others are the program's own
  Session s = make_session();
  const DRef killed = s.get_global_func("fail.break_pipe")();
  for (int worker = 0; worker < workers(); ++worker) EXPECT_EQ(killed.debug_get_from_remote(worker), Value(SIGPIPE)) << worker;
  s.sync_all();
}

}  // namespace
