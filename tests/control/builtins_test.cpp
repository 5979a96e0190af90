// The functions registered as runtime.disco.*, called by name as Disco's users do.
#include <gtest/gtest.h>
#include <sched.h>

#include "support/session_kinds.h"
#include "tutti/abi.h"

namespace {

using namespace tutti;
using namespace tutti_test;

const bool registered = [] {
  register_global_func("builtins_test.stream", [] {
    static int mine;
    const bool none = stream() == nullptr;
    void* before = &mine;
    TVMFFIEnvSetStream(1, 0, &mine, &before);
    const bool set = stream() == &mine && TVMFFIEnvGetStream(1, 0) == &mine && before == nullptr;
    TVMFFIEnvSetStream(1, 0, nullptr, nullptr);
    return none && set && stream() == nullptr;
  });
  register_global_func("builtins_test.id_tensor", [] { return Tensor::full<float>({3}, static_cast<float>(worker::id())); });
  register_global_func("builtins_test.cpu", [] {
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    int first = -1;
    for (int c = 0; c < CPU_SETSIZE && first < 0; ++c)
      if (CPU_ISSET(c, &mask)) first = c;
    return Shape{CPU_COUNT(&mask), first};
  });
  // both ends belong to one command: each worker does its part
  register_global_func("builtins_test.exchange",
                       [](const Function& send, const Function& recv, const Tensor& t, int64_t from, int64_t to) {
                         if (worker::id() == from) send(List{t, to});
                         if (worker::id() == to) recv(List{t, from});
                       });
  register_global_func("builtins_test.from_0", [](const Function& send, const Function& from_0, const Tensor& t) {
    if (worker::id() != 0) from_0(List{t});
    else
      for (int w = 1; w < worker::count(); ++w) send(List{t, w});
  });
  register_global_func("builtins_test.to_next_group", [](const Function& send, const Function& recv, const Tensor& t) {
    const Tensor mine = Tensor::full<float>({3}, static_cast<float>(worker::id()));
    if (worker::group_id() % 2 == 0) {
      if (worker::group_id() + 1 < worker::num_groups()) send(List{mine});
      if (worker::group_id() > 0) recv(List{t});
    } else {
      recv(List{t});
      if (worker::group_id() + 1 < worker::num_groups()) send(List{mine});
    }
  });
  return true;
}();

float first_of(const DRef& ref, int w) { return to_vector(ref.debug_get_from_remote(w))[0]; }

const bool known_at_load = find_global_func("runtime.disco.compiled_ccl").has_value();

TEST(Builtins, are_known_before_the_first_session) {
  EXPECT_TRUE(known_at_load);
  EXPECT_EQ(get_global_func("runtime.disco.compiled_ccl")({}), Value("mpi"));
}

TEST(Builtins, who_a_worker_is) {
  Session s = make_session();
  const auto call = [&](const char* name) { return s.get_global_func(std::string("runtime.disco.") + name)(); };
  DRef id = call("worker_id"), rank = call("worker_rank"), size = call("world_size"), device = call("device"),
       ccl = call("compiled_ccl");
  for (int w = 0; w < workers(); ++w) {
    EXPECT_EQ(id.debug_get_from_remote(w), Value(Shape{w}));
    EXPECT_EQ(rank.debug_get_from_remote(w), Value(w));
    EXPECT_EQ(size.debug_get_from_remote(w), Value(workers()));
    EXPECT_EQ(device.debug_get_from_remote(w), Value(cpu()));
    EXPECT_EQ(ccl.debug_get_from_remote(w), Value("mpi"));
    EXPECT_GE(ccl.reg_id(), 0);
  }
  EXPECT_THROW((void)DRef().reg_id(), UsageError);
}

TEST(Builtins, send_and_receive_by_name) {
  if (workers() < 2) return;  // a pair is needed
  Session s = make_session();
  auto make = s.get_global_func("builtins_test.id_tensor");
  auto send = s.get_global_func("runtime.disco.send_to_worker"), recv = s.get_global_func("runtime.disco.recv_from_worker");
  auto from_0 = s.get_global_func("runtime.disco.recv_from_worker0");
  const int last = workers() - 1;
  DRef t = make();
  auto pass = s.get_global_func("builtins_test.exchange");
  pass(send, recv, t, last, 0);
  EXPECT_EQ(first_of(t, 0), static_cast<float>(last));
  DRef u = make();
  s.get_global_func("builtins_test.from_0")(send, from_0, u);
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(first_of(u, w), 0.f) << w;
}

TEST(Builtins, next_and_previous_group) {
  for (int groups = 2; groups <= workers(); ++groups) {
    if (workers() % groups != 0) continue;
    Session s = make_session(groups);
    const int size = workers() / groups;
    DRef t = s.empty({3}, kFloat32);
    s.get_global_func("builtins_test.to_next_group")(s.get_global_func("runtime.disco.send_to_next_group"),
                                                     s.get_global_func("runtime.disco.recv_from_prev_group"), t);
    for (int w = size; w < workers(); ++w) EXPECT_EQ(first_of(t, w), static_cast<float>(w - size)) << groups;
    s.get_global_func("runtime.disco.recv_from_prev_group")(t);  // the first group has no neighbour
    EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("no such neighbour"), std::string::npos);
  }
}

// one stream of a worker: what a module sets is what functions, and later collectives, see
TEST(Builtins, stream) {
  EXPECT_THROW(stream(), UsageError);
  Session s = make_session();
  DRef right = s.get_global_func("builtins_test.stream")();
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(right.debug_get_from_remote(w), Value(true));
}

TEST(Builtins, bind_worker_to_cpu_core) {
  Session s = make_session();
  auto bind = s.get_global_func("runtime.disco.bind_worker_to_cpu_core"), where = s.get_global_func("builtins_test.cpu");
  const auto allowed = where().debug_get_from_remote(workers() - 1).as<Shape>();
  bind(Shape(static_cast<size_t>(workers()), allowed[1]));
  DRef now = where();
  for (int w = 0; w < workers(); ++w) EXPECT_EQ(now.debug_get_from_remote(w), Value(Shape{1, allowed[1]}));
  bind(Shape{});
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("0 cores for"), std::string::npos);
  bind(Shape(static_cast<size_t>(workers()), 100000));
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("can't be bound to core 100000"), std::string::npos);
  bind(Shape(static_cast<size_t>(workers()), -1));
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("core -1 does not exist"), std::string::npos);
}

TEST(Builtins, import_of_a_python_module_that_is_not_there) {
  Session s = make_session();
  s.import_python_module("no_such_module");
  const std::string said = message_of<RemoteError>([&] { s.sync_all(); });
  EXPECT_TRUE(said.find("No module named 'no_such_module'") != std::string::npos ||
              said.find("no Python in this process") != std::string::npos)
      << said;
}

}  // namespace
