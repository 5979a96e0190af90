// Functions registered as quick: a controller that waits runs them itself on worker 0, all others run where they always do.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/session_kinds.h"
#include "tutti/abi.h"

namespace {

using namespace tutti;
using namespace tutti_test;
using namespace std::chrono_literals;

std::atomic<std::thread::id> ran_on, destroyed_on;  // worker 0's: it lives in this process
std::atomic<int> runs{0};

struct Tracked {
  ~Tracked() { destroyed_on = std::this_thread::get_id(); }
};

void note() {
  if (worker::id() != 0) return;
  ran_on = std::this_thread::get_id();
  ++runs;
}

const RegisterOptions kQuick{.function = {.quick = true}};
const bool registered[] = {
    register_global_func(
        "quick.quick", [](int64_t x) { return note(), x + worker::id(); }, kQuick),
    register_global_func("quick.slow", [](int64_t x) { return note(), x + worker::id(); }),
    register_global_func(
        "quick.tensor", [](int64_t n) { return Tensor::full<float>({n}, static_cast<float>(worker::id())); }, kQuick),
    register_global_func(
        "quick.throw", [](int64_t bytes) { throw std::runtime_error(std::string(static_cast<size_t>(bytes), 'x') + " told to"); },
        kQuick),
    register_global_func(
        "quick.set_stream", [](int64_t x) { TVMFFIEnvSetStream(1, 0, reinterpret_cast<void*>(x), nullptr); }, kQuick),
    register_global_func("quick.stream", [] { return reinterpret_cast<int64_t>(stream()); }),
    register_global_func(
        "quick.communicate", [] { worker::world().barrier(); }, kQuick),
    register_global_func("quick.tracked", [] { return std::make_shared<Tracked>(); }),
};

TEST(Quick, a_controller_that_waits_runs_it_itself) {
  Session s = make_session();
  auto quick = s.get_global_func("quick.quick"), slow = s.get_global_func("quick.slow");
  s.sync_all();
  int inline_runs = 0;
  for (int i = 0; i < 1000; ++i) {
    DRef x = quick(i);
    s.sync_all();
    inline_runs += ran_on.load() == std::this_thread::get_id();
    EXPECT_EQ(x.debug_get_from_remote(0), Value(i));
    EXPECT_EQ(x.debug_get_from_remote(workers() - 1), Value(i + workers() - 1));
  }
  EXPECT_GT(inline_runs, 0);  // the thread may be first
  for (int i = 0; i < 100; ++i) {
    slow(i);
    s.sync_all();
    EXPECT_NE(ran_on.load(), std::this_thread::get_id());
  }
}

TEST(Quick, it_runs_without_the_controller_too) {
  Session s = make_session();
  auto quick = s.get_global_func("quick.quick");
  s.sync_all();
  for (const auto quiet : {0ms, 5ms, 300ms}) {
    std::this_thread::sleep_for(quiet);
    const int before = runs;
    for (int i = 0; i < 10; ++i) quick(i);
    for (const auto end = std::chrono::steady_clock::now() + 10s;
         runs < before + 10 && std::chrono::steady_clock::now() < end;) {  // no call
    }
    EXPECT_EQ(runs, before + 10);
    EXPECT_NE(ran_on.load(), std::this_thread::get_id());
  }
}

TEST(Quick, order_is_kept_between_both) {
  Session s = make_session();
  auto quick = s.get_global_func("quick.quick"), slow = s.get_global_func("quick.slow");
  DRef x = s.empty({4}, kFloat32);
  for (int round = 0; round < 200; ++round) {
    DRef a = quick(round), b = slow(a), c = quick(b), d = slow(c);
    if (round % 3 == 0) s.sync_worker(0);
    if (round % 3 == 1) s.sync_all();
    const int w = round % workers();
    EXPECT_EQ(d.debug_get_from_remote(w), Value(round + 4 * w));
  }
}

TEST(Quick, its_failures_are_like_all_others) {
  Session s = make_session();
  for (const int64_t bytes : {10, 2000000}) {  // more than a worker's ring for replies takes at once
    s.get_global_func("quick.throw")(bytes);
    const std::string text = message_of<RemoteError>([&] { s.sync_all(); });
    EXPECT_NE(text.find(" told to"), std::string::npos) << text.substr(0, 200);
    EXPECT_GE(text.size(), static_cast<size_t>(bytes));
    s.sync_all();
  }
  DRef lost = s.get_global_func("quick.throw")(1);
  DRef after = s.get_global_func("quick.quick")(1);
  EXPECT_THROW(s.sync_all(), RemoteError);
  EXPECT_THROW((void)after.debug_get_from_remote(0), RemoteError);
  EXPECT_EQ(s.get_global_func("quick.quick")(5).debug_get_from_remote(0), Value(5));
}

TEST(Quick, it_can_t_communicate) {
  Session s = make_session();
  s.get_global_func("quick.communicate")();
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("registered as quick can't communicate"), std::string::npos);
  s.sync_all();
}

TEST(Quick, a_worker_has_one_stream_on_both_of_its_threads) {
  Session s = make_session();
  auto set = s.get_global_func("quick.set_stream"), get = s.get_global_func("quick.stream");
  for (int64_t stream : {64, 128, 0}) {
    set(stream);
    s.sync_all();  // the controller runs it
    DRef seen = get();
    for (int w = 0; w < workers(); ++w) EXPECT_EQ(seen.debug_get_from_remote(w), Value(stream)) << w;
  }
}

TEST(Quick, an_object_dies_on_the_worker_s_thread) {
  Session s = make_session();
  s.get_global_func("quick.tracked")();
  for (int i = 0; i < 3; ++i) s.sync_all();
  EXPECT_NE(destroyed_on.load(), std::this_thread::get_id());
  EXPECT_NE(destroyed_on.load(), std::thread::id());
}

TEST(Quick, copies_and_reads_between_them) {
  Session s = make_session();
  for (int i = 0; i < 200; ++i) {
    DRef t = s.get_global_func("quick.tensor")(64);
    if (i % 2) s.sync_all();
    DRef u = s.copy_to_worker_0(Tensor::full<float>({64}, 3.0F));
    Tensor back = Tensor::full<float>({64}, 0.0F);
    s.copy_from_worker_0(back, i % 3 ? u : t);
    s.sync_worker(0);
    EXPECT_EQ(back.values<float>()[63], i % 3 ? 3.0F : 0.0F);
  }
}

}  // namespace
