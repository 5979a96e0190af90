// What Disco's own tests check, and what tutti adds, on every kind of session.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>
#include <thread>

#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

std::atomic<int> alive{0};
struct Counted {
  Counted() { ++alive; }
  Counted(const Counted&) { ++alive; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { --alive; }
};

const bool registered = [] {
  register_global_func("test.counted", [] { return make_opaque(Counted()); });
  register_global_func("test.add_one_int", [](int64_t x) { return x + 1; });
  register_global_func("test.add_one_float", [](double x) { return x + 0.5; });
  register_global_func("test.add_suffix", [](const std::string& s) { return s + "_suffix"; });
  register_global_func("test.echo", [](const Value& v) { return v; });
  register_global_func("test.identity_tensor", [](const Tensor& t) { return t; });
  register_global_func("test.add_one_tensor", [](const Tensor& t) {
    Tensor r = Tensor::like(t);
    for (int64_t i = 0; i < t.element_count(); ++i)
      r.values<float>()[static_cast<size_t>(i)] = t.values<float>()[static_cast<size_t>(i)] + 1;
    return r;
  });
  register_global_func("test.rank_tensor", [](const Shape& shape, double scale) {
    Tensor t = Tensor::empty(shape, kFloat32);
    float next = static_cast<float>(worker::id() * 100);
    for (float& x : t.values<float>()) x = static_cast<float>(scale) * next++;
    return t;
  });
  register_global_func("test.worker_id", [] { return worker::id(); });
  register_global_func("test.opaque", [] { return make_opaque(std::vector<int>{worker::id(), 7}); });
  register_global_func("test.opaque_sum", [](const Value& v) {
    auto* held = opaque_cast<std::vector<int>>(v);
    return held ? std::accumulate(held->begin(), held->end(), 0) : -1;
  });
  register_global_func("test.make_adder",
                       [](int64_t n) { return make_function("adder", [n, counted = Counted()](int64_t x) { return x + n; }); });
  register_global_func("test.apply_twice", [](const Function& f, int64_t x) { return f(List{f(List{x})}); });
  struct Cache {
    std::vector<int64_t> kept;
    Counted counted;
    Cache() = default;
    Cache(const Cache&) = delete;
  };
  register_global_func("test.cache", [] { return std::make_shared<Cache>(); });
  register_global_func("test.cache_add",
                       [](const std::shared_ptr<Cache>& cache, int64_t x) { cache->kept.push_back(x + worker::id()); });
  register_global_func("test.cache_sum", [](const std::shared_ptr<const Cache>& cache) {
    return std::accumulate(cache->kept.begin(), cache->kept.end(), int64_t{0});
  });
  register_global_func("test.alive", [] { return alive.load(); });
  register_global_func("test.settings", [] {
    Opaque settings{std::make_shared<std::any>(worker::count()), "Settings"};
    settings.content = [](const Opaque& self) -> Value { return Dict({"workers"}, {std::any_cast<int>(*self.object)}); };
    return settings;
  });
  register_global_func("test.setting", [](const Dict& settings, const std::string& name) { return *settings.find(name); });
  register_global_func("test.throw", [](const Value&) { throw std::runtime_error("told to"); });
  register_global_func("test.ramps", [](int64_t n) {  // in all kinds of memory
    const auto owner = std::make_shared<std::vector<float>>(iota(2 * n));
    const Tensor wrapped = Tensor::wrap(owner->data(), {n}, kFloat32, [owner] {});
    const Tensor strided = Tensor::wrap(owner->data(), {n}, kFloat32, [owner] {}, {2});
    return List{floats(iota(n)), "between", List{wrapped, strided, 7}, floats(iota(3)), floats(iota(2 * n)).slice(1, n + 1)};
  });
  register_global_func("test.negate", [](const Tensor& t) {
    for (float& x : t.values<float>()) x = -x;
  });
  register_global_func("test.sleep_ms", [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
  return true;
}();

TEST(Session, int_float_str_bytes_shape_dtype_device_lists_come_back_from_every_worker) {
  Session s = make_session();
  auto echo = s.get_global_func("test.echo");
  const std::vector<Value> values = {Value(),
                                     true,
                                     41,
                                     -1.5,
                                     "text",
                                     std::string(100000, 'x'),
                                     Bytes{std::byte{0}, std::byte{255}},
                                     Shape{1, 2, 3},
                                     Shape{},
                                     kBFloat16,
                                     cuda(3),
                                     List{1, "two", List{3.0, Value()}},
                                     Dict({"a", 2}, {List{1}, Dict({"t"}, {Tensor::from<int32_t>({1, 2})})}),
                                     Tensor::from<int32_t>({1, 2, 3, 4}, {2, 2})};
  for (const Value& value : values) {
    DRef r = echo(value);
    for (int w = 0; w < workers(); ++w) EXPECT_EQ(r.debug_get_from_remote(w), value) << to_string(value) << " worker " << w;
  }
  DRef i = s.get_global_func("test.add_one_int")(41), f = s.get_global_func("test.add_one_float")(1.0),
       t = s.get_global_func("test.add_suffix")("hello");
  for (int w = 0; w < workers(); ++w) {
    EXPECT_EQ(i.debug_get_from_remote(w), Value(42));
    EXPECT_EQ(f.debug_get_from_remote(w), Value(1.5));
    EXPECT_EQ(t.debug_get_from_remote(w), Value("hello_suffix"));
  }
}

TEST(Session, dicts_hold_registers_and_large_tensors_and_objects_travel_as_their_content) {
  Session s = make_session();
  const int n = 100000;
  DRef ramp = s.get_global_func("test.ramps")(n);
  s.sync_all();
  DRef made = s.get_global_func("test.echo")(Dict({"ramp", "list"}, {ramp, List{ramp, 1}}));
  DRef settings = s.get_global_func("test.settings")();
  DRef read = s.get_global_func("test.setting")(settings, "workers");
  for (int w = 0; w < workers(); ++w) {
    const Value expected = ramp.debug_get_from_remote(w);
    EXPECT_EQ(made.debug_get_from_remote(w), Value(Dict({"ramp", "list"}, {expected, List{expected, 1}})));
    EXPECT_EQ(settings.debug_get_from_remote(w), Value(Dict({"workers"}, {s.num_workers()})));
    EXPECT_EQ(read.debug_get_from_remote(w), Value(s.num_workers()));
    made.debug_copy_from(w, Dict({"new"}, {floats(iota(n))}));
    EXPECT_EQ(made.debug_get_from_remote(w), Value(Dict({"new"}, {floats(iota(n))})));
  }
  EXPECT_NE(
      message_of<UsageError>([&] { s.get_global_func("test.echo")(Dict({"big"}, {floats(iota(n))})); }).find("400000 bytes"),
      std::string::npos);
  s.sync_all();
}

TEST(Session, results_are_arguments_of_later_calls) {
  Session s = make_session();
  DRef a = s.get_global_func("test.rank_tensor")(Shape{4}, 1.0);
  DRef b = s.call_packed(s.get_global_func("test.add_one_tensor"), a);
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(to_vector(b.debug_get_from_remote(w)), iota(4, static_cast<float>(w * 100 + 1)));
}

TEST(Session, copies_to_and_from_worker_0) {
  Session s = make_session();
  const Tensor host = floats(iota(100), {10, 10});
  DRef fresh = s.copy_to_worker_0(host);
  EXPECT_EQ(fresh.debug_get_from_remote(0), Value(host));
  if (workers() > 1) {
    EXPECT_TRUE(fresh.debug_get_from_remote(1).is_none());
  }
  DRef remote = s.empty({10, 10}, kFloat32);
  s.copy_to_worker_0(host, remote);
  Tensor back = Tensor::full<float>({10, 10}, -1);
  s.copy_from_worker_0(back, remote);
  s.sync_worker_0();
  EXPECT_EQ(Value(back), Value(host));
}

TEST(Session, debug_copy_from_keeps_the_tensor_when_it_fits_and_replaces_it_when_not) {
  Session s = make_session();
  const int last = workers() - 1;
  DRef r = s.empty({4}, kFloat32);
  DRef alias = s.get_global_func("test.identity_tensor")(r);
  r.debug_copy_from(last, floats({1, 2, 3, 4}));
  EXPECT_EQ(to_vector(alias.debug_get_from_remote(last)), (std::vector<float>{1, 2, 3, 4}));
  r.debug_copy_from(last, floats({5, 6}));
  EXPECT_EQ(to_vector(r.debug_get_from_remote(last)), (std::vector<float>{5, 6}));
  EXPECT_EQ(to_vector(alias.debug_get_from_remote(last)), (std::vector<float>{1, 2, 3, 4}));
  r.debug_copy_from(last, "a str");
  EXPECT_EQ(r.debug_get_from_remote(last), Value("a str"));
}

TEST(Session, empty_on_first_workers_only) {
  for (int groups : group_counts()) {
    Session s = make_session(groups);
    const int group_size = workers() / groups;
    DRef everywhere = s.empty({2}, kInt64), roots = s.empty({2}, kInt64, {}, true, true),
         zero = s.empty({2}, kInt64, {}, true, false);
    for (int w = 0; w < workers(); ++w) {
      EXPECT_FALSE(everywhere.debug_get_from_remote(w).is_none());
      EXPECT_EQ(roots.debug_get_from_remote(w).is_none(), w % group_size != 0);
      EXPECT_EQ(zero.debug_get_from_remote(w).is_none(), w != 0);
    }
  }
}

TEST(Session, allreduce_five_ops_in_group_and_global) {
  for (int groups : group_counts()) {
    Session s = make_session(groups);
    const int group_size = workers() / groups;
    DRef src = s.get_global_func("test.rank_tensor")(Shape{3, 4}, 0.25), dst = s.empty({12}, kFloat32);
    for (const char* op : {"sum", "prod", "min", "max", "avg"}) {
      for (bool in_group : {true, false}) {
        s.allreduce(src, dst, op, in_group);
        for (int w = 0; w < workers(); ++w) {
          const int first = in_group ? w / group_size * group_size : 0, n = in_group ? group_size : workers();
          const auto got = to_vector(dst.debug_get_from_remote(w));
          for (int i = 0; i < 12; ++i) {
            double expected = 0.25 * (first * 100 + i);
            for (int k = first + 1; k < first + n; ++k) {
              const double x = 0.25 * (k * 100 + i);
              if (op == std::string("sum") || op == std::string("avg")) expected += x;
              else if (op == std::string("prod")) expected *= x;
              else if (op == std::string("min")) expected = std::min(expected, x);
              else expected = std::max(expected, x);
            }
            if (op == std::string("avg")) expected /= n;
            EXPECT_NEAR(got[static_cast<size_t>(i)], expected, 1e-5 * std::abs(expected) + 1e-6) << op << " worker " << w;
          }
        }
      }
    }
  }
}

TEST(Session, allgather_and_all_to_all_and_reduce_scatter) {
  for (int groups : group_counts()) {
    Session s = make_session(groups);
    const int n = workers() / groups;
    DRef src = s.get_global_func("test.rank_tensor")(Shape{2}, 1.0), all = s.empty({n, 2}, kFloat32);
    s.allgather(src, all, true);
    DRef parts = s.get_global_func("test.rank_tensor")(Shape{2 * n}, 1.0), swapped = s.empty({2 * n}, kFloat32),
         mine = s.empty({2}, kFloat32);
    s.all_to_all(parts, swapped, true);
    s.reduce_scatter(parts, mine, "sum", true);
    for (int w = 0; w < workers(); ++w) {
      const int first = w / n * n, rank = w % n;
      std::vector<float> gathered, exchanged, reduced(2, 0);
      for (int k = first; k < first + n; ++k)
        for (int i = 0; i < 2; ++i) {
          gathered.push_back(static_cast<float>(k * 100 + i));
          exchanged.push_back(static_cast<float>(k * 100 + rank * 2 + i));
          reduced[static_cast<size_t>(i)] += static_cast<float>(k * 100 + rank * 2 + i);
        }
      EXPECT_EQ(to_vector(all.debug_get_from_remote(w)), gathered);
      EXPECT_EQ(to_vector(swapped.debug_get_from_remote(w)), exchanged);
      EXPECT_EQ(to_vector(mine.debug_get_from_remote(w)), reduced);
    }
  }
}

TEST(Session, broadcast_fills_every_group) {
  for (int groups : group_counts())
    for (bool in_group : {true, false}) {
      Session s = make_session(groups);
      const Tensor host = floats(iota(12), {3, 4});
      DRef implicit = s.broadcast(host, {}, in_group), dst = s.empty({3, 4}, kFloat32), same = s.broadcast(host, dst, in_group);
      for (int w = 0; w < workers(); ++w) {
        EXPECT_EQ(implicit.debug_get_from_remote(w), Value(host));
        EXPECT_EQ(dst.debug_get_from_remote(w), Value(host));
      }
    }
}

TEST(Session, broadcast_from_worker0_in_group_takes_each_group_s_first) {
  for (int groups : group_counts()) {
    Session s = make_session(groups);
    const int n = workers() / groups;
    DRef src = s.get_global_func("test.rank_tensor")(Shape{4}, 1.0), dst = s.empty({4}, kFloat32);
    s.broadcast_from_worker0(src, dst);
    for (int w = 0; w < workers(); ++w)
      EXPECT_EQ(to_vector(dst.debug_get_from_remote(w)), iota(4, static_cast<float>(w / n * n * 100)));
  }
}

/// Small ones are copied, large ones read where they lie: memory of others, and of tutti's own.
TEST(Session, what_is_broadcast_or_scattered_may_be_changed_on_return) {
  for (int groups : group_counts()) {
    Session s = make_session(groups);
    const int n = workers();
    auto sleep = s.get_global_func("test.sleep_ms");
    for (const int64_t columns : {int64_t{3}, int64_t{100'003}})
      for (const bool is_foreign : {true, false}) {
        std::vector<float> values = iota(n * columns);
        Tensor host = is_foreign ? Tensor::wrap(values.data(), {n, columns}, kFloat32) : floats(values, {n, columns});
        sleep(20);
        DRef everywhere = s.broadcast(host);
        for (float& x : host.values<float>()) x = 5;
        const DRef into = s.empty({n, columns}, kFloat32), part = s.empty({columns}, kFloat32);
        sleep(20);
        s.broadcast(host, into);
        for (size_t i = 0; float& x : host.values<float>()) x = static_cast<float>(2 * i++);
        sleep(20);
        s.scatter(host, part, false);
        for (float& x : host.values<float>()) x = 7;
        for (int w = 0; w < n; ++w) {
          EXPECT_EQ(to_vector(everywhere.debug_get_from_remote(w)), iota(n * columns)) << columns << " worker " << w;
          EXPECT_EQ(to_vector(into.debug_get_from_remote(w)), std::vector<float>(static_cast<size_t>(n * columns), 5))
              << columns << " worker " << w;
          const auto got = to_vector(part.debug_get_from_remote(w));
          for (int64_t i = 0; i < columns; i += 997)
            ASSERT_EQ(got[static_cast<size_t>(i)], static_cast<float>(2 * (w * columns + i)))
                << columns << " worker " << w << " element " << i;
        }
      }
  }
}

TEST(Session, a_large_broadcast_after_a_failure_is_skipped) {
  Session s = make_session();
  const Tensor host = Tensor::full<float>({workers(), 100'000}, 1);
  s.get_global_func("test.throw")(1);
  DRef dst = s.broadcast(host);
  DRef part = s.scatter(host, {}, false);
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("told to"), std::string::npos);
  EXPECT_NE(message_of<RemoteError>([&] { part.debug_get_from_remote(0); }), "");
  s.broadcast(host, dst = s.empty(host.shape(), kFloat32));
  s.sync_all();
}

TEST(Session, scatter_with_and_without_destination) {
  for (int groups : group_counts())
    for (bool in_group : {true, false}) {
      Session s = make_session(groups);
      const int n = in_group ? workers() / groups : workers();
      const Tensor host = floats(iota(n * 6), {n, 2, 3});
      DRef implicit = s.scatter(host, {}, in_group), flat = s.empty({6}, kFloat32);  // implicit reshape
      s.scatter(host, flat, in_group);
      for (int w = 0; w < workers(); ++w) {
        EXPECT_EQ(implicit.debug_get_from_remote(w).as<Tensor>().shape(), (Shape{2, 3}));
        EXPECT_EQ(to_vector(implicit.debug_get_from_remote(w)), iota(6, static_cast<float>(w % n * 6)));
        EXPECT_EQ(to_vector(flat.debug_get_from_remote(w)), iota(6, static_cast<float>(w % n * 6)));
      }
      EXPECT_THROW(s.scatter(floats(iota((n + 1) * 2), {n + 1, 2}), {}, in_group), UsageError);
    }
}

TEST(Session, gather_to_worker0) {
  for (int groups : group_counts())
    for (bool in_group : {true, false}) {
      Session s = make_session(groups);
      const int n = in_group ? workers() / groups : workers();
      DRef src = s.get_global_func("test.rank_tensor")(Shape{2}, 1.0), dst = s.empty({n, 2}, kFloat32, {}, true, in_group);
      s.gather_to_worker0(src, dst, in_group);
      for (int root = 0; root < workers(); root += n) {
        std::vector<float> expected;
        for (int w = root; w < root + n; ++w)
          expected.insert(expected.end(), {static_cast<float>(w * 100), static_cast<float>(w * 100 + 1)});
        EXPECT_EQ(to_vector(dst.debug_get_from_remote(root)), expected);
      }
    }
}

TEST(Session, groups_send_to_the_next_and_worker_2_sends_to_worker_0) {
  if (workers() != 4) return;  // these functions of Disco are made for 2 groups of 2; other counts: communicator_test
  Session s = make_session(2);
  const std::string ccl = kind() == "mpi" ? "mpi" : "local";
  s.init_ccl(ccl);
  DRef r = s.get_global_func("test.rank_tensor")(Shape{2}, 1.0);
  s.get_global_func("runtime.disco." + ccl + ".test_send_to_next_group_recv_from_prev_group")(r);
  EXPECT_EQ(to_vector(r.debug_get_from_remote(2)), iota(2, 0));
  EXPECT_EQ(to_vector(r.debug_get_from_remote(3)), iota(2, 100));
  DRef q = s.get_global_func("test.rank_tensor")(Shape{2}, 1.0);
  s.get_global_func("runtime.disco." + ccl + ".test_worker2_sends_to_worker0")(q);
  EXPECT_EQ(to_vector(q.debug_get_from_remote(0)), iota(2, 200));
}

TEST(Session, opaque_objects_live_in_registers_and_do_not_travel) {
  Session s = make_session();
  DRef held = s.get_global_func("test.opaque")(), sum = s.get_global_func("test.opaque_sum")(held);
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(sum.debug_get_from_remote(w), Value(w + 7));
  EXPECT_NE(opaque_cast<std::vector<int>>(held.debug_get_from_remote(0)), nullptr);
  if (workers() > 1) {
    EXPECT_THROW(held.debug_get_from_remote(1), UsageError);
  }
  s.sync_all();
}

TEST(Session, closures_are_values_that_are_called_and_passed) {
  Session s = make_session();
  DPackedFunc add_three(s.get_global_func("test.make_adder")(3));
  DRef eight = add_three(5), eleven = s.get_global_func("test.apply_twice")(add_three, 5);
  for (int w = 0; w < workers(); ++w) {
    EXPECT_EQ(eight.debug_get_from_remote(w), Value(8));
    EXPECT_EQ(eleven.debug_get_from_remote(w), Value(11));
  }
  EXPECT_EQ(add_three.debug_get_from_remote(0).as<Function>()(List{1}), Value(4));  // it travels from worker 0 only
  add_three("three");
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("adder: argument 1"), std::string::npos);
  if (workers() > 1) {
    EXPECT_THROW(add_three.debug_get_from_remote(1), UsageError);
  }
}

TEST(Session, objects_behind_shared_pointers) {
  Session s = make_session();
  DRef cache = s.get_global_func("test.cache")();
  for (int i = 0; i < 3; ++i) s.get_global_func("test.cache_add")(cache, 10);
  DRef sum = s.get_global_func("test.cache_sum")(cache);
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(sum.debug_get_from_remote(w), Value(3 * (10 + w)));
  s.get_global_func("test.cache_sum")(s.get_global_func("test.opaque")());
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("expected std::shared_ptr<"), std::string::npos);
}

// ... on their worker, whatever the way: dropped, overwritten, at an error, at the end
TEST(Session, objects_are_destroyed_with_their_registers) {
  const int before = alive.load();
  {
    Session s = make_session();
    auto alive_on = [&](int w) { return s.get_global_func("test.alive")().debug_get_from_remote(w).as<int>(); };
    const int threads = kind() == "thread" ? workers() : 1;  // of one process
    DRef adder = s.get_global_func("test.make_adder")(3), cache = s.get_global_func("test.cache")();
    s.sync_all();
    for (int w = 0; w < workers(); ++w) EXPECT_GE(alive_on(w), 2 * threads) << w;
    s.get_global_func("test.throw")(cache);
    EXPECT_THROW(s.sync_all(), RemoteError);  // the error keeps none of its arguments
    cache = DRef();
    adder = DRef();
    s.get_global_func("test.echo")(1);  // what was dropped rides along
    s.sync_all();
    for (int w = 0; w < workers(); ++w) EXPECT_EQ(alive_on(w), kind() == "thread" || w == 0 ? before : 0) << w;
    adder = s.get_global_func("test.make_adder")(3);
    cache = s.get_global_func("test.cache")();
    s.get_global_func("test.throw")(cache);
    EXPECT_THROW(s.shutdown(), RemoteError);
    EXPECT_EQ(alive.load(), before);  // the handles are still here, the objects are not
  }
  {
    Session s = make_session();  // the same workers: nothing of the last session is left on them
    for (int w = 0; w < workers(); ++w)
      EXPECT_EQ(s.get_global_func("test.alive")().debug_get_from_remote(w), Value(kind() == "thread" || w == 0 ? before : 0));
  }
}

TEST(Session, commands_larger_than_the_ring) {
  Session s = make_session();
  const std::string big(5 << 20, 'b');
  DRef r = s.get_global_func("test.echo")(big);
  EXPECT_EQ(r.debug_get_from_remote(workers() - 1), Value(big));
  const Tensor tensor = floats(iota(3 << 20));
  r.debug_copy_from(workers() - 1, tensor);
  EXPECT_EQ(r.debug_get_from_remote(workers() - 1), Value(tensor));
}

/// Every byte, in a period that no piece on the way has.
Tensor pattern(int64_t size_bytes) {
  Tensor t = Tensor::empty({size_bytes}, kUInt8);
  int64_t i = size_bytes;
  for (uint8_t& x : t.values<uint8_t>()) x = static_cast<uint8_t>(i++ % 251);
  return t;
}

TEST(Session, tensors_of_every_size_go_to_a_worker_and_come_back) {
  Session s = make_session();
  const auto owner = std::make_shared<std::vector<uint8_t>>();
  std::vector<int64_t> sizes{
      0, 1, 16 << 10, (32 << 10) - 1, 32 << 10, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, 1 << 20, (4 << 20) + 1};
  if (workers() == 2 || workers() == 3) sizes.push_back(64 << 20);
  for (int64_t size : sizes)
    for (int w : std::set{0, workers() - 1}) {
      const Tensor sent = pattern(size);
      owner->assign(sent.values<uint8_t>().begin(), sent.values<uint8_t>().end());
      DRef there = s.empty({size}, kUInt8), alias = s.get_global_func("test.identity_tensor")(there);
      there.debug_copy_from(w, sent);  // into the tensor that is there
      EXPECT_EQ(alias.debug_get_from_remote(w), Value(sent)) << size << " bytes, worker " << w;
      DRef new_one = s.get_global_func("test.worker_id")();
      new_one.debug_copy_from(w, List{Tensor::wrap(owner->data(), {size}, kUInt8), "x", List{sent}});
      owner->assign(owner->size(), 1);  // ours again
      EXPECT_EQ(new_one.debug_get_from_remote(w), Value(List{sent, "x", List{sent}})) << size << " bytes, worker " << w;
      EXPECT_EQ(alias.debug_get_from_remote(w), Value(sent)) << size << " bytes, worker " << w;
    }
}

TEST(Session, tensors_come_back_from_all_kinds_of_memory) {
  Session s = make_session();
  for (int64_t n : {5, 20'000, 600'000}) {
    DRef ramps = s.get_global_func("test.ramps")(n);
    std::vector<float> even = iota(2 * n);
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) even[i] = even[2 * i];
    even.resize(static_cast<size_t>(n));
    const Value expected =
        List{floats(iota(n)), "between", List{floats(iota(n)), floats(even), 7}, floats(iota(3)), floats(iota(n, 1))};
    for (int w = 0; w < workers(); ++w) EXPECT_EQ(ramps.debug_get_from_remote(w), expected) << n << " elements, worker " << w;
  }
}

TEST(Session, a_large_tensor_is_what_it_was_at_its_command) {
  Session s = make_session();
  const int last = workers() - 1;
  const int64_t n = 500'000;
  auto sleep = s.get_global_func("test.sleep_ms"), negate = s.get_global_func("test.negate");
  DRef there = s.empty({n}, kFloat32);
  std::vector<float> mine = iota(n);
  const Tensor wrapped = Tensor::wrap(mine.data(), {n}, kFloat32);
  sleep(600);  // on a busy machine the controller comes late
  EXPECT_THROW(there.debug_copy_from(last, wrapped, std::chrono::milliseconds(20)), TimeoutError);
  mine.assign(mine.size(), 0);  // the array is ours again, and the copy is under way
  EXPECT_EQ(to_vector(there.debug_get_from_remote(last)), iota(n));
  sleep(600);
  EXPECT_THROW((void)there.debug_get_from_remote(last, std::chrono::milliseconds(20)), TimeoutError);
  negate(there);
  negate(there);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(to_vector(there.debug_get_from_remote(last)), iota(n));
  s.sync_all();
}

TEST(Session, calls_run_ahead_of_slow_workers_until_the_ring_is_full) {
  Session s = make_session();
  auto echo = s.get_global_func("test.echo");
  s.get_global_func("test.sleep_ms")(50);
  DRef last;
  for (int i = 0; i < 30000; ++i) last = echo(i);
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(last.debug_get_from_remote(w), Value(29999));
}

TEST(Session, registers_are_reused) {
  Session s = make_session();
  auto echo = s.get_global_func("test.echo");
  int64_t highest = 0;
  for (int i = 0; i < 1000; ++i) highest = std::max(highest, std::get<RegisterRef>(Value(echo(i)).data()).id);
  EXPECT_LT(highest, 10);
}

TEST(Session, an_idle_session_frees_dropped_registers) {
  Session s = make_session();
  auto make = s.get_global_func("test.counted");
  {
    DRef kept = make();
    s.sync_all();
    EXPECT_GE(alive.load(), 1);
  }
  for (int i = 0; i < 200 && alive > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(alive.load(), 0);
}

TEST(Session, a_time_out_of_the_caller_s_is_resumable) {
  Session s = make_session();
  s.get_global_func("test.sleep_ms")(300);
  EXPECT_THROW(s.sync_all(std::chrono::milliseconds(20)), TimeoutError);
  EXPECT_THROW(s.sync_worker(workers() - 1, std::chrono::milliseconds(20)), TimeoutError);
  s.sync_all();
  DRef r = s.get_global_func("test.worker_id")();
  EXPECT_EQ(r.debug_get_from_remote(0), Value(0));
}

TEST(Session, sessions_follow_each_other) {
  for (int i = 0; i < 5; ++i) {
    Session s = make_session(1, 1 + i % workers());
    DRef r = s.get_global_func("runtime.disco.world_size")();
    EXPECT_EQ(r.debug_get_from_remote(s.num_workers() - 1), Value(1 + i % workers()));
  }
}

TEST(Session, init_ccl_by_name_and_again) {
  Session s = make_session();
  for (const char* ccl : {"auto", "mpi", "auto"}) {
    std::vector<int64_t> ids(static_cast<size_t>(workers()));
    std::iota(ids.begin(), ids.end(), 0);
    s.init_ccl(ccl, ids);
    DRef src = s.get_global_func("test.rank_tensor")(Shape{2}, 1.0), dst = s.empty({2}, kFloat32, cpu());
    s.allreduce(src, dst, "max", false);
    EXPECT_EQ(to_vector(dst.debug_get_from_remote(0)), iota(2, static_cast<float>((workers() - 1) * 100)));
  }
  s.init_ccl("nonsense");
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("mpi, local, nccl, rccl and auto"), std::string::npos);
}

TEST(Session, drefs_may_be_dropped_on_any_thread) {
  Session s = make_session();
  auto echo = s.get_global_func("test.echo");
  for (int round = 0; round < 20; ++round) {
    std::vector<DRef> refs;
    for (int i = 0; i < 100; ++i) refs.push_back(echo(i));
    std::thread other([dropped = std::move(refs)]() mutable { dropped.clear(); });
    for (int i = 0; i < 100; ++i) echo(i);
    other.join();
  }
  EXPECT_EQ(echo(5).debug_get_from_remote(workers() - 1), Value(5));
}

TEST(SessionKinds, overlapping_threaded_sessions) {
  ThreadedSession a(2), b(3);
  DRef x = a.get_global_func("test.worker_id")(), y = b.get_global_func("test.worker_id")();
  EXPECT_EQ(y.debug_get_from_remote(2), Value(2));
  EXPECT_EQ(x.debug_get_from_remote(1), Value(1));
  EXPECT_THROW(b.call_packed(a.get_global_func("test.echo"), 1), UsageError);
  EXPECT_THROW(b.call_packed(b.get_global_func("test.echo"), x), UsageError);
}

TEST(SessionKinds, one_job_session_at_a_time) {
  if (kind() != "mpi") return;
  Session s = make_session();
  const std::string text = message_of<UsageError>([] { make_session(); });
  EXPECT_NE(text.find("session_kinds.h"), std::string::npos) << text;
  s.shutdown();
  Session next = make_session();
  next.sync_all();
}

TEST(SessionKinds, socket_session_checks_the_shape) {
  const std::string text = message_of<UsageError>([] { SocketSession(7, 3, 1, "localhost", 0); });
  EXPECT_NE(text.find(" -N 7 --ntasks-per-node=3"), std::string::npos) << text;
  EXPECT_NE(text.find("mpirun -n 21"), std::string::npos) << text;
}

}  // namespace
