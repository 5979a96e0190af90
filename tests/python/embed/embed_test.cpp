// A controller in C++ whose workers' functions are Python's.
#include "support/session_kinds.h"

namespace {

using namespace tutti;
using namespace tutti_test;

TEST(Embed, functions_of_a_python_module) {
  Session s = make_session();
  s.import_python_module("embedded");
  const DRef x = s.broadcast(floats({1, 2, 3}));
  s.get_global_func("embedded.scale")(x, 2.5);
  s.allreduce(x, x);
  const float n = static_cast<float>(workers());
  EXPECT_EQ(to_vector(x.debug_get_from_remote(workers() - 1)), (std::vector{2.5f * n, 5 * n, 7.5f * n}));
  const DRef total = s.get_global_func("embedded.total")(x);  // a collective inside the Python function
  EXPECT_EQ(total.debug_get_from_remote(0).as<double>(), 15 * n * n);
  const DRef made = s.get_global_func("embedded.make")("a");
  EXPECT_EQ(s.get_global_func("embedded.size")(made).debug_get_from_remote(workers() - 1), Value(1));
  const DRef thrice = s.get_global_func("embedded.multiplier")(3);
  EXPECT_EQ(s.call_packed(thrice, 14).debug_get_from_remote(0), Value(42));
  s.get_global_func("embedded.say")("printed by Python");
  s.sync_all();
}

TEST(Embed, an_exception_is_a_failure_with_its_traceback) {
  Session s = make_session();
  s.import_python_module("embedded");
  s.get_global_func("embedded.fail")();
  try {
    s.sync_all();
    FAIL();
  } catch (const RemoteError& error) {
    ASSERT_EQ(std::ssize(error.failures()), workers());
    EXPECT_EQ(error.failures()[0].kind, "KeyError");
    EXPECT_NE(error.failures()[0].traceback.find("in fail"), std::string::npos) << error.failures()[0].traceback;
  }
  EXPECT_EQ(s.get_global_func("embedded.multiplier")(1).debug_get_from_remote(0).kind(), Value::Kind::kFunction);
}

TEST(Embed, no_such_module) {
  Session s = make_session();
  s.import_python_module("no_such_module");
  EXPECT_NE(message_of<RemoteError>([&] { s.sync_all(); }).find("ModuleNotFoundError: No module named 'no_such_module'"),
            std::string::npos);
}

TEST(Embed, again_and_again) {
  for (int i = 0; i < 20; ++i) {
    Session s = make_session();
    s.import_python_module("embedded");
    s.get_global_func("embedded.make")("x");
  }
}

}  // namespace
