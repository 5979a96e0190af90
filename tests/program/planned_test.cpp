// Small collectives that are run again and again with the same operands: by a program, and by a worker's function.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/session_kinds.h"
#include "tutti/program.h"

namespace planned_test {
namespace {

using namespace tutti;
using namespace tutti_test;

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::logic_error("wrong: " + what);
}
template <class F>
bool is_refused(F f) {
  try {
    f();
  } catch (const Error&) {
    return true;
  }
  return false;
}
void fill(const Tensor& t, int64_t value) {
  for (int64_t& x : t.values<int64_t>()) x = value++;
}
void set(const Tensor& t, int32_t value) {
  for (int32_t& x : t.values<int32_t>()) x = value;
}

/// Each operation whose data has room in a cache line, a hundred times; others come late now and then; every tenth round begins
/// with a collective that all fail in, after which members tell more of themselves than a line holds.
void all_operations(int64_t bytes, bool fails_between) {
  const Comm world = worker::world();
  const int n = world.size(), me = world.rank();
  const Tensor one = Tensor::empty({bytes / 8}, kInt64), sum = Tensor::like(one), shared = Tensor::like(one);
  const Tensor mine = Tensor::full<uint8_t>({1}, 0), all = Tensor::empty({n}, kUInt8), out = Tensor::like(all),
               turned = Tensor::like(all);
  for (int round = 0; round < 100; ++round) {
    if (round % 17 == me) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (fails_between && round % 10 == 3)
      expect(is_refused([&] { world.allreduce(one, sum, me == 0 ? ReduceOp::kSum : ReduceOp::kMax); }) == (n > 1), "a mismatch");
    fill(one, round + me);
    world.allreduce(one, sum);
    for (int64_t i = 0; i < one.element_count(); ++i)
      expect(sum.values<int64_t>()[static_cast<size_t>(i)] == n * (round + i) + n * (n - 1) / 2, "allreduce");
    world.allreduce(one, sum, ReduceOp::kMax);
    expect(sum.values<int64_t>()[0] == round + n - 1, "max");
    const int root = round % n;
    fill(shared, 100 * round + me);
    world.broadcast(shared, shared, root);
    expect(shared.values<int64_t>()[0] == 100 * round + root, "broadcast");
    mine.values<uint8_t>()[0] = static_cast<uint8_t>(round + me);
    world.allgather(mine, all);
    for (int r = 0; r < n; ++r) {
      expect(all.values<uint8_t>()[static_cast<size_t>(r)] == static_cast<uint8_t>(round + r), "allgather");
      out.values<uint8_t>()[static_cast<size_t>(r)] = static_cast<uint8_t>(round + 10 * me + r);
    }
    world.all_to_all(out, turned);
    for (int r = 0; r < n; ++r)
      expect(turned.values<uint8_t>()[static_cast<size_t>(r)] == static_cast<uint8_t>(round + 10 * r + me), "all_to_all");
    world.reduce_scatter(out, mine);
    uint8_t total = 0;
    for (int r = 0; r < n; ++r) total = static_cast<uint8_t>(total + round + 10 * r + me);
    expect(mine.values<uint8_t>()[0] == total, "reduce_scatter");
    if (n > 1 && me == 0) world.send(one, 1);
    if (me == 1) world.recv(sum, 0);
    expect(me != 1 || sum.values<int64_t>()[0] == round, "send");
  }
}

/// What differs in one thing only from a collective that has just run often.
void others_at_the_same_place() {
  const Comm world = worker::world();
  const Tensor memory = Tensor::empty({8}, kInt32), from = Tensor::empty({8}, kInt32);
  const Tensor dst = memory.slice(0, 2), src = from.slice(0, 2);
  const int32_t n = world.size(), sum = n * (n + 1) / 2;
  const auto often = [&] {
    for (int i = 0; i < 4; ++i) {
      for (int32_t k = 0; k < 8; ++k) from.values<int32_t>()[static_cast<size_t>(k)] = 10 * k + world.rank() + 1;
      set(memory, -1);
      world.allreduce(src, dst);
      expect(dst.values<int32_t>()[0] == sum && dst.values<int32_t>()[1] == 10 * n + sum, "two");
    }
    set(memory, -1);
  };
  for (int round = 0; round < 3; ++round) {
    often();
    world.allreduce(from.slice(0, 1), memory.slice(0, 1));
    expect(dst.values<int32_t>()[0] == sum && dst.values<int32_t>()[1] == -1, "another count");
    often();
    world.allreduce(src, dst, ReduceOp::kMax);
    expect(dst.values<int32_t>()[0] == n && dst.values<int32_t>()[1] == 10 + n, "another reduction");
    often();
    world.allreduce(from.slice(2, 4), dst);
    expect(dst.values<int32_t>()[0] == 20 * n + sum, "another src");
    often();
    expect(is_refused([&] { world.allreduce(from.view({2}, {2}, 0), dst); }), "a strided src");
    often();
    expect(is_refused([&] { world.allreduce(src, memory.view({2}, {2}, 0)); }), "a strided dst");
    often();
    expect(is_refused([&] { world.allreduce(Tensor::wrap(from.data(), {2}, kFloat32), dst); }), "another dtype of src");
    often();
    const Tensor unsigned_src = Tensor::wrap(from.data(), {2}, kUInt32), unsigned_dst = Tensor::wrap(memory.data(), {2}, kUInt32);
    if (world.rank() == 0) expect(is_refused([&] { world.allreduce(unsigned_src, unsigned_dst); }) == (n > 1), "another dtype");
    else expect(is_refused([&] { world.allreduce(src, dst); }), "another's dtype");
    often();
    world.allreduce(src.reshape({2, 1}), dst.reshape({1, 2}));
    expect(dst.values<int32_t>()[0] == sum, "another shape");
    often();
    world.broadcast(src, dst, n - 1);
    expect(dst.values<int32_t>()[0] == n, "another operation");
    often();
    if (n > 1) {
      expect(is_refused([&] { world.allreduce(dst, src, world.rank() == 0 ? ReduceOp::kMin : ReduceOp::kMax); }), "a mismatch");
      expect(is_refused([&] { world.allreduce(src, dst); }), "a lost src");
      world.broadcast(Tensor::full<int32_t>({2}, 0), src);
    }
    often();
    world.allreduce(dst, dst);
    expect(dst.values<int32_t>()[0] == -n, "in place");
  }
}

/// Parts with the same operands as those of the command before, of other members.
void parts(const Tensor& x, const Tensor& y, int64_t round) {
  const Comm world = worker::world();
  const int color = (world.rank() + static_cast<int>(round)) % 3 / 2;  // two of three together
  const Comm part = world.split(color);
  for (int i = 0; i < 3; ++i) {
    fill(x, i + world.rank());
    part.allreduce(x, y);
    int64_t sum = 0;
    for (const int member : part.workers()) sum += i + member;
    expect(y.values<int64_t>()[0] == sum, "a part's allreduce");
  }
}

void nothing() {
  const Comm world = worker::world();
  const Tensor none = Tensor::empty({0}, kInt64), also = Tensor::empty({0}, kInt64);
  for (int i = 0; i < 4; ++i) world.allreduce(none, also), world.broadcast(none, none), world.allgather(none, also);
}

const bool registered = [] {
  register_global_func("planned.all", all_operations);
  register_global_func("planned.others", others_at_the_same_place);
  register_global_func("planned.parts", parts);
  register_global_func("planned.nothing", nothing);
  register_global_func("planned.fill", [](const Tensor& t, int64_t value) { fill(t, value + worker::id()); });
  register_global_func("planned.add", [](const Tensor& t) {
    for (int64_t& x : t.values<int64_t>()) x += worker::id() + 1;
  });
  register_global_func("planned.sum", [](const Tensor& t) {
    int64_t sum = 0;
    for (const int64_t x : t.values<int64_t>()) sum += x;
    return sum;
  });
  register_global_func("planned.lose", [](const Tensor& t) {
    const Tensor other = Tensor::full<int64_t>({worker::id() == 0 ? 1 : 2}, 0);
    worker::world().allreduce(other, worker::id() == 0 ? t : Tensor::like(other));
  });
  return true;
}();

int64_t get(const DRef& ref, int worker = 0) { return ref.debug_get_from_remote(worker).as<int64_t>(); }
/// p replays an allreduce of x, which holds 5 + id, into y and returns the sum.
struct SumOfFives {
  DRef x, y;
  Program p;
};
SumOfFives sum_of_fives(Session& s) {
  const DRef x = s.empty({1}, kInt64), y = s.empty({1}, kInt64);
  auto recording = s.record();
  s.allreduce(x, y);
  recording.returns(s.get_global_func("planned.sum")(y));
  const Program p = recording.finish();
  s.get_global_func("planned.fill")(x, 5);
  return {x, y, p};
}
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Planned, every_operation_many_times) {
  Session s = make_session();
  for (const int64_t bytes : {8, 16, 8192})
    for (const bool fails : {false, true}) s.get_global_func("planned.all")(bytes, fails), s.sync_all();
}

TEST(Planned, what_differs_in_one_thing_is_not_taken_for_the_same) {
  Session s = make_session();
  s.get_global_func("planned.others")();
  s.sync_all();
}

TEST(Planned, parts_and_empty_arrays) {
  Session s = make_session();
  const DRef x = s.empty({1}, kInt64), y = s.empty({1}, kInt64);
  for (int64_t round = 0; round < 10; ++round) s.get_global_func("planned.parts")(x, y, round);
  s.get_global_func("planned.nothing")();
  s.sync_all();
}

TEST(Planned, steps_of_each_operation) {
  for (const int groups : group_counts())
    for (const bool in_group : {true, false}) {
      Session s = make_session(groups);
      const int n = s.num_workers(), size = in_group ? n / groups : n;
      const DRef x = s.empty({1}, kInt64), sum = s.empty({1}, kInt64), first = s.empty({1}, kInt64),
                 all = s.empty({size}, kInt64);
      auto recording = s.record();
      s.get_global_func("planned.add")(x);
      s.allreduce(x, sum, "sum", in_group);
      s.broadcast_from_worker0(x, first, in_group);
      s.allgather(x, all, in_group);
      for (const DRef& each : {sum, first, all}) recording.returns(s.get_global_func("planned.sum")(each));
      const Program p = recording.finish();
      s.get_global_func("planned.fill")(x, 0);
      for (int call = 1; call <= 10; ++call) {
        if (call == 7) p.repeat(3), call += 3;
        const DRef values = p();
        for (const int w : {0, n - 1}) {
          int64_t expected = 0;
          const int begin = in_group ? w / size * size : 0;
          for (int m = begin; m < begin + size; ++m) expected += m + call * (m + 1);
          const List got = values.debug_get_from_remote(w).as<List>();
          EXPECT_EQ(got.at(0).as<int64_t>(), expected) << call;
          EXPECT_EQ(got.at(1).as<int64_t>(), begin + call * (begin + 1)) << call;
          EXPECT_EQ(got.at(2).as<int64_t>(), expected) << call;
        }
      }
    }
}

TEST(Planned, a_program_reads_its_arrays_anew) {
  Session s = make_session();
  const int64_t n = s.num_workers();
  for (const int64_t count : {1, 3, 5000}) {
    const DRef x = s.empty({count}, kInt64), y = s.empty({count}, kInt64);
    auto recording = s.record();
    s.get_global_func("planned.add")(x);
    s.allreduce(x, y);
    recording.returns(s.get_global_func("planned.sum")(y));
    const Program p = recording.finish();
    s.get_global_func("planned.fill")(x, 0);
    const int64_t at_first = count * n * (n - 1) / 2 + n * count * (count - 1) / 2, each = count * n * (n + 1) / 2;
    for (int call = 1; call <= 5; ++call) EXPECT_EQ(get(p(), static_cast<int>(n) - 1), at_first + call * each) << count;
    p.repeat(1000);
    EXPECT_EQ(get(p()), at_first + 1006 * each) << count;
  }
}

TEST(Planned, another_array_in_its_register_is_taken) {
  Session s = make_session();
  const int n = s.num_workers();
  const DRef x = s.empty({1}, kInt64), y = s.empty({1}, kInt64);
  auto recording = s.record();
  s.get_global_func("planned.add")(x);
  s.allreduce(x, y);
  recording.returns(s.get_global_func("planned.sum")(y));
  const Program p = recording.finish();
  s.get_global_func("planned.fill")(x, 5);
  const int64_t each = n * (n + 1) / 2;
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(get(p()), 5 * n + n * (n - 1) / 2 + i * each);
  for (int w = 0; w < n; ++w) {
    x.debug_copy_from(w, Tensor::from<int64_t>({w, 10, 20}));
    y.debug_copy_from(w, Tensor::from<int64_t>({0, 0, 0}));
  }
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(get(p()), n * (n - 1) / 2 + 30 * n + 3 * i * each);
  p.repeat(5);
  EXPECT_EQ(get(p(), n - 1), n * (n - 1) / 2 + 30 * n + 3 * 9 * each);
}

TEST(Planned, a_lost_array_is_refused_until_it_is_written) {
  Session s = make_session();
  const int n = s.num_workers();
  if (n == 1) return;  // nobody to disagree with
  const auto [x, y, p] = sum_of_fives(s);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get(p()), 5 * n + n * (n - 1) / 2);
  s.get_global_func("planned.lose")(x);
  EXPECT_NE(error_of([&] { s.sync_all(); }).find("operands differ"), std::string::npos);
  p();
  const std::string why = error_of([&] { s.sync_all(); });
  EXPECT_NE(why.find("step 1 of program"), std::string::npos) << why;
  EXPECT_NE(why.find("lost"), std::string::npos) << why;
  s.get_global_func("planned.fill")(x, 7);
  EXPECT_NE(error_of([&] { s.sync_all(); }).find("lost"), std::string::npos) << "on worker 0, which lost it";
  for (int w = 0; w < n; ++w) x.debug_copy_from(w, Tensor::from<int64_t>({w}));
  EXPECT_EQ(get(p()), n * (n - 1) / 2);
}

TEST(Planned, init_ccl_makes_new_plans) {
  Session s = make_session();
  const int n = s.num_workers();
  const auto [x, y, p] = sum_of_fives(s);
  for (const char* ccl : {"auto", "mpi", "auto"}) {
    s.init_ccl(ccl);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(get(p()), 5 * n + n * (n - 1) / 2) << ccl;
  }
}

TEST(Planned, a_member_with_something_else_is_told_in_any_iteration) {
  Session s = make_session();
  const int n = s.num_workers();
  if (n == 1) return;  // nobody to disagree with
  const auto [x, y, p] = sum_of_fives(s);
  for (int i = 0; i < 3; ++i) p();
  s.sync_all();
  x.debug_copy_from(n - 1, Tensor::from<int64_t>({1, 2}));
  y.debug_copy_from(n - 1, Tensor::from<int64_t>({1, 2}));
  for (int i = 0; i < 3; ++i) {
    p();
    const std::string why = error_of([&] { s.sync_all(); });
    EXPECT_NE(why.find("operands differ"), std::string::npos) << why;
    EXPECT_NE(why.find("step 1 of program"), std::string::npos) << why;
  }
  x.debug_copy_from(n - 1, Tensor::from<int64_t>({n - 1 + 5}));
  y.debug_copy_from(n - 1, Tensor::from<int64_t>({0}));
  EXPECT_EQ(get(p()), 5 * n + n * (n - 1) / 2);
}

}  // namespace
}  // namespace planned_test
